// Resolves addresses and JSON pointers.
#include "grammar/schema_refs.h"

#include <array>
#include <charconv>

#include "grammar/grammar.h"

namespace sluice::grammar {
namespace {

enum class Holds : uint8_t { kSchema, kList, kMap, kSchemaOrList };

struct Place {
  std::string_view keyword;
  Holds holds;
};
constexpr Place kPlaces[] = {
    {"properties", Holds::kMap},
    {"patternProperties", Holds::kMap},
    {"$defs", Holds::kMap},
    {"definitions", Holds::kMap},
    {"dependentSchemas", Holds::kMap},
    {"dependencies", Holds::kMap},
    {"additionalProperties", Holds::kSchema},
    {"propertyNames", Holds::kSchema},
    {"unevaluatedProperties", Holds::kSchema},
    {"unevaluatedItems", Holds::kSchema},
    {"additionalItems", Holds::kSchema},
    {"items", Holds::kSchemaOrList},
    {"contains", Holds::kSchema},
    {"not", Holds::kSchema},
    {"if", Holds::kSchema},
    {"then", Holds::kSchema},
    {"else", Holds::kSchema},
    {"allOf", Holds::kList},
    {"anyOf", Holds::kList},
    {"oneOf", Holds::kList},
    {"prefixItems", Holds::kList},
};

struct Address {
  std::string_view scheme, authority, path, query;
  bool has_authority = false, has_query = false;
};

Address split(std::string_view text) {
  Address out;
  const size_t colon = text.find_first_of(":/?#");
  if (colon != std::string_view::npos && colon > 0 && text[colon] == ':') {
    out.scheme = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  if (text.starts_with("//")) {
    out.has_authority = true;
    const size_t end = std::min(text.find_first_of("/?#", 2), text.size());
    out.authority = text.substr(2, end - 2);
    text.remove_prefix(end);
  }
  const size_t query = text.find('?');
  out.path = text.substr(0, query);
  out.has_query = query != std::string_view::npos;
  if (out.has_query) out.query = text.substr(query + 1);
  return out;
}

std::string without_dots(std::string_view path) {
  std::string out;
  const bool absolute = path.starts_with('/');
  while (!path.empty()) {
    const size_t end = path.find('/', 1);
    std::string_view part = path.substr(0, end);
    path = end == std::string_view::npos ? std::string_view() : path.substr(end);
    if (part == "/." || part == ".") {
      if (path.empty()) out += '/';
    } else if (part == "/.." || part == "..") {
      out.erase(out.rfind('/') == std::string::npos ? 0 : out.rfind('/'));
      if (path.empty()) out += '/';
    } else {
      out += part;
    }
  }
  return absolute && !out.starts_with('/') ? std::string(1, '/').append(out) : out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (text[i] == '%' && high >= 0 && low >= 0) {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string join_address(const std::string& base, std::string_view reference) {
  const size_t hash = reference.find('#');
  const std::string_view fragment =
      hash == std::string_view::npos ? std::string_view() : reference.substr(hash + 1);
  const Address r = split(reference.substr(0, hash));
  const Address b = split(std::string_view(base).substr(0, base.find('#')));
  Address out = r;
  std::string path(r.path);
  if (r.scheme.empty()) {
    out.scheme = b.scheme;
    if (!r.has_authority) {
      out.authority = b.authority;
      out.has_authority = b.has_authority;
      if (r.path.empty()) {
        path = b.path;
        if (!r.has_query) out.query = b.query, out.has_query = b.has_query;
      } else if (!r.path.starts_with('/')) {
        const size_t slash = b.path.rfind('/');
        path = slash == std::string_view::npos ? (b.has_authority ? "/" : "")
                                               : std::string(b.path.substr(0, slash + 1));
        path += r.path;
      }
    }
  }
  std::string text;
  if (!out.scheme.empty()) text.append(out.scheme).append(":");
  if (out.has_authority) text.append("//").append(out.authority);
  text += out.scheme == "urn" ? path : without_dots(path);
  if (out.has_query) text.append("?").append(out.query);
  return text.append("#").append(fragment);
}

SchemaRefs::SchemaRefs(const JsonDocument& document) : document_(document) {
  const uint32_t dialect = document.find(0, "$schema");
  if (dialect != kNoValue) {
    for (const std::string_view old : {"draft-07", "draft-06", "draft-04", "draft-03"}) {
      draft7_ |= document[dialect].text.find(old) != std::string::npos;
    }
  }
  places_["#"] = 0;
  bases_[0] = "";
  visit(0, "", 0);
}

void SchemaRefs::visit(uint32_t schema, const std::string& outer, int depth) {
  const JsonValue& v = document_[schema];
  if (v.type != JsonType::kObject || depth > kMaxNesting) return;
  std::string base = outer;
  const auto text = [&](std::string_view key) -> const std::string* {
    const uint32_t at = document_.find(schema, key);
    return at != kNoValue && document_[at].type == JsonType::kString ? &document_[at].text
                                                                     : nullptr;
  };
  const bool plain_ref = draft7_ && text("$ref") != nullptr;
  if (const std::string* id = text("$id"); id != nullptr && !plain_ref) {
    const std::string full = join_address(base, *id);
    if (id->starts_with('#')) {
      places_.try_emplace(full, schema);
    } else {
      base = full.substr(0, full.find('#'));
      bases_[schema] = base;
      places_.try_emplace(base + "#", schema);
    }
  }
  if (const std::string* anchor = text("$anchor"))
    places_.try_emplace(base + "#" + *anchor, schema);
  if (const std::string* anchor = text("$dynamicAnchor")) {
    places_.try_emplace(base + "#" + *anchor, schema);
    ++dynamic_[*anchor];
    dynamic_place_[base + "#" + *anchor] = true;
  }
  for (const Place& place : kPlaces) {
    const uint32_t at = document_.find(schema, place.keyword);
    if (at == kNoValue) continue;
    const bool list = document_[at].type == JsonType::kArray;
    if (place.holds == Holds::kSchema || (place.holds == Holds::kSchemaOrList && !list)) {
      visit(at, base, depth + 1);
    } else {
      for (const uint32_t child : document_[at].children) visit(child, base, depth + 1);
    }
  }
}

std::string SchemaRefs::base_of(uint32_t at) const {
  for (; at != kNoValue; at = document_[at].parent) {
    const auto found = bases_.find(at);
    if (found != bases_.end()) return found->second;
  }
  return "";
}

uint32_t SchemaRefs::follow(uint32_t from, std::string_view pointer) const {
  while (from != kNoValue && pointer.starts_with('/')) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    const std::string escaped = unescape(pointer.substr(0, end));
    pointer.remove_prefix(end);
    std::string part;
    for (size_t i = 0; i < escaped.size(); ++i) {
      const char after = i + 1 < escaped.size() ? escaped[i + 1] : '\0';
      const bool marked = escaped[i] == '~' && (after == '0' || after == '1');
      part += !marked ? escaped[i] : after == '0' ? '~' : '/';
      if (marked) ++i;
    }
    if (document_[from].type != JsonType::kArray) {
      from = document_.find(from, part);
      continue;
    }
    uint32_t index = 0;
    const auto [rest, bad] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool good = bad == std::errc() && index < document_[from].children.size();
    from = good ? document_[from].children[index] : kNoValue;
  }
  return pointer.empty() ? from : kNoValue;
}

uint32_t SchemaRefs::resolve(uint32_t at, std::string_view reference) const {
  const std::string full = join_address(base_of(at), reference);
  const auto known = places_.find(full);
  if (known != places_.end()) return known->second;
  const size_t hash = full.find('#');
  const auto root = places_.find(full.substr(0, hash + 1));
  if (root == places_.end()) return kNoValue;
  return follow(root->second, std::string_view(full).substr(hash + 1));
}

uint32_t SchemaRefs::resolve_dynamic(uint32_t at, std::string_view reference, bool* unclear) const {
  const std::string full = join_address(base_of(at), reference);
  const size_t hash = full.find('#');
  const auto times = dynamic_.find(full.substr(hash + 1));
  *unclear = dynamic_place_.contains(full) && times != dynamic_.end() && times->second > 1;
  return resolve(at, reference);
}

}  // namespace sluice::grammar
