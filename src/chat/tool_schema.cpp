#include "chat/tool_schema.h"

#include <algorithm>

#include "base/concat.h"
#include "jinja/json_text.h"

namespace sluice::chat {
namespace {

constexpr std::string_view kAnnotations[] = {"title",     "description", "default",
                                             "examples",  "deprecated",  "readOnly",
                                             "writeOnly", "$comment",    "nullable"};
constexpr std::string_view kObjectKeys[] = {
    "type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema"};
constexpr std::string_view kTextKeys[] = {"pattern", "format", "minLength", "maxLength",
                                          "allOf",   "oneOf",  "not",       "if"};
constexpr std::string_view kTypeNames[] = {"string", "number", "boolean",
                                           "object", "array",  "null"};
constexpr int kMaxReferences = 20;
constexpr int kMaxDepth = 50;     // of anyOf in anyOf
constexpr int kMaxWork = 10'000;  // schemas that are looked at, since references can repeat

template <size_t n>
bool is_one_of(std::string_view name, const std::string_view (&names)[n]) {
  return std::find(names, names + n, name) != names + n;
}

bool is_json_object(std::string_view value) {
  return json_type(value) == JsonType::kObject;
}

std::optional<std::string_view> defs_name(std::string_view reference, std::string_view* place) {
  for (const std::string_view each : {"$defs", "definitions"}) {
    const std::string prefix = concat({"#/", each, "/"});
    if (!reference.starts_with(prefix)) continue;
    *place = each;
    return reference.substr(prefix.size());
  }
  return std::nullopt;
}

// A name of a JSON pointer in a URI fragment.
std::string unescaped(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto is_hex = [&](size_t at) {
      return at < name.size() &&
             std::string_view("0123456789abcdefABCDEF").find(name[at]) != std::string_view::npos;
    };
    const std::string_view two = name.substr(i, 2);
    if (two == "~1" || two == "~0") {
      out += two == "~1" ? '/' : '~';
      ++i;
    } else if (name[i] == '%' && is_hex(i + 1) && is_hex(i + 2)) {
      const auto digit = [&](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
      out += static_cast<char>(digit(name[i + 1]) << 4 | digit(name[i + 2]));
      i += 2;
    } else {
      out += name[i];
    }
  }
  return out;
}

// Resolves a local $ref. Nullopt if that fails, or if keywords other than annotations are beside
// it.
std::optional<std::string_view> resolved(std::string_view schema, std::string_view root,
                                         int depth = 0) {
  if (!is_json_object(schema) || depth > kMaxReferences) return std::nullopt;
  const std::optional<std::string_view> reference = json_member(schema, "$ref");
  if (!reference) return schema;
  for (const JsonMember& member : json_members(schema)) {
    if (member.name != "$ref" && !is_one_of(member.name, kAnnotations)) return std::nullopt;
  }
  std::string_view place;
  const std::string text = json_string(*reference);
  const std::optional<std::string_view> name = defs_name(text, &place);
  if (!name || name->empty() || name->find('/') != std::string_view::npos) return std::nullopt;
  const std::optional<std::string_view> all = json_member(root, place);
  const auto found = all ? json_member(*all, unescaped(*name)) : std::nullopt;
  return found ? resolved(*found, root, depth + 1) : std::nullopt;
}

TypeSet named_type(std::string_view name) {
  if (name == "integer") return kNumberType;
  const auto* found = std::find(std::begin(kTypeNames), std::end(kTypeNames), name);
  if (found == std::end(kTypeNames)) return kUnknownType;
  return static_cast<TypeSet>(1 << (found - kTypeNames));
}

// The names in a "type" keyword.
std::vector<std::string> type_names(std::string_view type) {
  std::vector<std::string> out;
  if (json_type(type) != JsonType::kArray) return {json_string(type)};
  for (const std::string_view item : json_items(type)) out.push_back(json_string(item));
  return out;
}

TypeSet type_set(std::string_view type) {
  TypeSet set = 0;
  for (const std::string& name : type_names(type)) set |= named_type(name);
  return set;
}

std::optional<std::vector<std::string_view>> enum_values(std::string_view schema) {
  if (const auto constant = json_member(schema, "const")) return std::vector{*constant};
  const auto list = json_member(schema, "enum");
  if (!list || json_type(*list) != JsonType::kArray) return std::nullopt;
  return json_items(*list);
}

// An object with the members of `schema` that `keeps` selects, and further ones.
template <typename Keeps>
std::string with_members(std::string_view schema, const Keeps& keeps, const std::string& further) {
  std::string out = "{";
  for (const JsonMember& member : json_members(schema)) {
    if (!keeps(member.name)) continue;
    out += concat(
        {out.size() > 1 ? "," : "", json_quote(member.name), ":", json_compact(member.value)});
  }
  if (!further.empty()) out += (out.size() > 1 ? "," : "") + further;
  return out + "}";
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ",") + part;
  return out;
}

struct SchemaSplit {
  bool any_text = false;
  std::vector<std::string> texts, values;
};

SchemaSplit by_type(std::string_view own, std::string_view root) {
  const TypeSet types = types_of(own, root).value_or(kAllTypes);
  SchemaSplit out;
  out.any_text = (types & kStringType) != 0;
  for (const std::string_view name : kTypeNames) {
    if (name == "string" || (types & named_type(name)) == 0) continue;
    out.values.push_back(concat({R"({"type":)", json_quote(name), "}"}));
  }
  return out;
}

// The first keyword of `schema` that is neither an annotation nor one of `allowed`; "": none.
std::string other_keyword(std::string_view schema,
                          std::initializer_list<std::string_view> allowed) {
  for (const JsonMember& member : json_members(schema)) {
    const std::string_view name = member.name;
    if (name == "$defs" || name == "definitions" || is_one_of(name, kAnnotations)) continue;
    if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) return member.name;
  }
  return {};
}

// Splits an enum or const.
Result<SchemaSplit> split_values(std::string_view schema, std::string_view root,
                                 const std::string& at,
                                 const std::vector<std::string_view>& values) {
  const std::string wrong = other_keyword(schema, {"const", "enum", "type"});
  if (!wrong.empty()) {
    return unsupported(concat({at, "/", wrong}),
                       "this is not supported beside enum or const in a parameter");
  }
  const bool typed = json_member(schema, "type").has_value();
  const TypeSet types = typed ? types_of(schema, root).value_or(kAllTypes) : kAllTypes;
  SchemaSplit out;
  std::vector<std::string> others;
  for (const std::string_view value : values) {
    if ((types & type_of(value)) == 0) continue;
    if (json_type(value) == JsonType::kString) {
      out.texts.push_back(json_string(value));
    } else {
      others.push_back(json_compact(value));
    }
  }
  const auto keeps = [](std::string_view name) {
    return name != "const" && name != "enum" && name != "$defs" && name != "definitions";
  };
  if (!others.empty()) {
    out.values.push_back(with_members(schema, keeps, concat({"\"enum\":[", joined(others), "]"})));
  }
  return out;
}

// Splits a schema into strings, which are written without quotes, and other values.
Result<SchemaSplit> split(std::string_view own, std::string_view root, const std::string& at,
                          int depth, int* work) {
  const bool anything = json_compact(own) == "true";
  const std::optional<std::string_view> found =
      anything ? std::string_view("{}") : resolved(own, root);
  if (--*work < 0 || depth > kMaxDepth) return unsupported(at, "the schema is too complex");
  if (!found) {
    return unsupported(at, "no value is possible, or the reference cannot be resolved");
  }
  const std::string_view schema = *found;
  if (const auto values = enum_values(schema)) return split_values(schema, root, at, *values);
  SchemaSplit out;
  const auto ways = json_member(schema, "anyOf");
  if (ways && json_type(*ways) == JsonType::kArray) {
    const std::string wrong = other_keyword(schema, {"anyOf"});
    if (!wrong.empty()) {
      return unsupported(concat({at, "/", wrong}),
                         "this is not supported beside anyOf in a parameter");
    }
    size_t i = 0;
    for (const std::string_view way : json_items(*ways)) {
      Result<SchemaSplit> one =
          split(way, root, concat({at, "/anyOf/", std::to_string(i++)}), depth + 1, work);
      if (!one.ok()) return one;
      out.any_text = out.any_text || one->any_text;
      for (std::string& each : one->texts) out.texts.push_back(std::move(each));
      for (std::string& each : one->values) out.values.push_back(std::move(each));
    }
    return out;
  }
  if (other_keyword(schema, {}).empty()) {
    out.any_text = true;
    out.values.emplace_back("{}");
    return out;
  }
  const auto type = json_member(schema, "type");
  if (!type) return unsupported(at + "/type", "a parameter needs a type");
  std::vector<std::string> others;
  for (const std::string& name : type_names(*type)) {
    if (name == "string") {
      out.any_text = true;
    } else {
      others.push_back(json_quote(name));
    }
  }
  for (const JsonMember& member : json_members(schema)) {
    if (!out.any_text || !is_one_of(member.name, kTextKeys)) continue;
    return unsupported(concat({at, "/", member.name}),
                       "this cannot be enforced for strings written without quotes");
  }
  const auto keeps = [](std::string_view name) {
    return name != "type" && name != "$defs" && name != "definitions";
  };
  if (!others.empty()) {
    out.values.push_back(with_members(schema, keeps, concat({"\"type\":[", joined(others), "]"})));
  }
  return out;
}

// Whether a keyword anywhere in a schema refers to something else than $defs.
bool refers_elsewhere(std::string_view value, int depth = 0) {
  if (depth > static_cast<int>(kMaxJsonDepth)) return true;
  for (const std::string_view item : json_items(value)) {
    if (refers_elsewhere(item, depth + 1)) return true;
  }
  std::string_view place;
  for (const JsonMember& member : json_members(value)) {
    const std::string_view name = member.name;
    if (name == "$dynamicRef" || name == "$recursiveRef" || name == "$id" || name == "$anchor") {
      return true;
    }
    if (name == "$ref" && json_type(member.value) == JsonType::kString &&
        !defs_name(json_string(member.value), &place)) {
      return true;
    }
    if (refers_elsewhere(member.value, depth + 1)) return true;
  }
  return false;
}

Status check_strict(std::string_view schema, const std::vector<std::string>& required) {
  for (const JsonMember& member : json_members(schema)) {
    if (is_one_of(member.name, kObjectKeys) || is_one_of(member.name, kAnnotations)) continue;
    return unsupported("/" + member.name,
                       "this model writes parameters separately, so this is not supported");
  }
  if (refers_elsewhere(schema)) {
    return unsupported(
        "", "this model writes parameters separately, so references can only point into $defs");
  }
  const std::string_view properties = json_member(schema, "properties").value_or("{}");
  for (const std::string& name : required) {
    if (json_member(properties, name)) continue;
    return unsupported("/required", concat({"\"", name, "\" is not in properties"}));
  }
  return {};
}

}  // namespace

Status unsupported(const std::string& where, const std::string& why) {
  return error(Code::kSchemaUnsupported, "at \"%.200s\": %.200s", where.c_str(), why.c_str());
}

TypeSet type_of(std::string_view value) {
  switch (json_type(value)) {
    case JsonType::kNone:
      return 0;
    case JsonType::kNull:
      return kNullType;
    case JsonType::kBoolean:
      return kBooleanType;
    case JsonType::kNumber:
      return kNumberType;
    case JsonType::kString:
      return kStringType;
    case JsonType::kArray:
      return kArrayType;
    case JsonType::kObject:
      return kObjectType;
  }
  return 0;
}

namespace {

std::optional<TypeSet> types_within(std::string_view given, std::string_view root, int depth,
                                    int* work) {
  const std::optional<std::string_view> schema = resolved(given, root);
  if (!schema || --*work < 0 || depth > kMaxDepth) return std::nullopt;
  if (const auto type = json_member(*schema, "type")) return type_set(*type);
  TypeSet set = 0;
  if (const auto values = enum_values(*schema)) {
    for (const std::string_view value : *values) set |= type_of(value);
    return set;
  }
  auto ways = json_member(*schema, "anyOf");
  if (!ways) ways = json_member(*schema, "oneOf");
  if (!ways || json_type(*ways) != JsonType::kArray) return std::nullopt;
  for (const std::string_view way : json_items(*ways)) {
    const std::optional<TypeSet> types = types_within(way, root, depth + 1, work);
    if (!types) return std::nullopt;
    set |= *types;
  }
  return set;
}

}  // namespace

std::optional<TypeSet> types_of(std::string_view schema, std::string_view root) {
  int work = kMaxWork;
  return types_within(schema, root, 0, &work);
}

Result<std::vector<Parameter>> parameters_of(std::string_view schema, bool strict) {
  std::vector<Parameter> out;
  if (!is_json_object(schema)) return out;
  std::vector<std::string> required;
  for (const std::string_view name : json_items(json_member(schema, "required").value_or("[]"))) {
    required.push_back(json_string(name));
  }
  if (strict) SLUICE_RETURN_IF_ERROR(check_strict(schema, required));
  std::string defs;
  for (const std::string_view key : {"$defs", "definitions"}) {
    const auto found = json_member(schema, key);
    if (!found) continue;
    defs += concat({defs.empty() ? "" : ",", json_quote(key), ":", json_compact(*found)});
  }
  const auto keeps = [&](std::string_view name) {
    return defs.empty() || (name != "$defs" && name != "definitions");
  };
  const std::string_view properties = json_member(schema, "properties").value_or("{}");
  int work = kMaxWork;
  for (const JsonMember& member : json_members(properties)) {
    Result<SchemaSplit> found =
        strict ? split(member.value, schema, "/properties/" + member.name, 0, &work)
               : by_type(member.value, schema);
    if (!found.ok()) return found.status();
    Parameter& parameter = out.emplace_back();
    parameter.name = member.name;
    parameter.required = std::find(required.begin(), required.end(), member.name) != required.end();
    parameter.any_text = found->any_text;
    parameter.texts = std::move(found->texts);
    for (const std::string& value : found->values) {
      parameter.values.push_back(with_members(value, keeps, defs));
    }
  }
  return out;
}

}  // namespace sluice::chat
