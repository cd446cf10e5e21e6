// Attributes and items of values, methods of lists and dictionaries, and the loop variable.
#include <algorithm>

#include "base/concat.h"
#include "jinja/interpreter.h"
#include "jinja/numbers.h"

namespace sluice::jinja {
namespace {

// The sandbox forbids methods that change a list or dictionary.
constexpr std::string_view kListChanges[] = {"append", "clear",   "extend", "insert",
                                             "pop",    "reverse", "remove", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values"};

template <size_t N>
bool is_one_of(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool changes(const Value& value, std::string_view name) {
  if (value.is(Kind::kDict)) return is_one_of(kDictChanges, name);
  return value.is(Kind::kSequence) && value.sequence->flavor == Flavor::kList &&
         is_one_of(kListChanges, name);
}

std::string described(const Value& value) {
  if (value.is(Kind::kNone)) return "None";
  return concat({type_name(value), " object"});
}

Value call_dict_method(Interpreter& in, const Method& method, const Arguments& args) {
  const Dict& dict = *method.self.dict;
  if (method.name == "get") {
    const auto a = bind(in, "get", args, "/ /");
    if (a[0] == nullptr) return in.fail("get expected at least 1 argument, got 0");
    const Value* found = in.ok() ? in.find(dict, *a[0]) : nullptr;
    return found != nullptr ? *found : a[1] != nullptr ? *a[1] : none();
  }
  (void)bind(in, method.name.c_str(), args, "/");
  if (method.name == "copy") {
    auto* copy = in.make<Dict>();
    for (const auto& [key, value] : dict.entries) in.put(copy, key, value);
    return Value(copy);
  }
  std::vector<Value> out;
  for (const auto& [key, value] : dict.entries) {
    if (method.name == "keys") {
      out.push_back(key);
    } else if (method.name == "values") {
      out.push_back(value);
    } else {
      out.push_back(in.sequence({key, value}, Flavor::kTuple));
    }
  }
  const Flavor flavor = method.name == "keys"     ? Flavor::kKeys
                        : method.name == "values" ? Flavor::kValues
                                                  : Flavor::kItems;
  return in.sequence(std::move(out), flavor);
}

Value call_list_method(Interpreter& in, const Method& method, const Arguments& args) {
  const std::vector<Value>& items = method.self.sequence->items;
  const auto a = bind(in, method.name.c_str(), args, "/");
  if (method.name == "copy") return in.sequence(items);
  if (a[0] == nullptr) return in.fail("%s() takes one argument", method.name.c_str());
  int64_t count = 0;
  for (size_t i = 0; i < items.size() && in.ok(); ++i) {
    if (!in.equal(items[i], *a[0])) continue;
    if (method.name == "index") return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (method.name == "index") return in.fail("the value is not in the list");
  return Value(count);
}

// cycle() and changed() of the method's loop.
Value call_loop_method(Interpreter& in, const Method& method, const Arguments& args) {
  Loop* loop = method.self.loop;
  if (method.name == "cycle") {
    if (args.places.empty()) return in.fail("no items for cycling given");
    return args.places[loop->index % args.places.size()];
  }
  bool same = loop->asked && loop->changed.size() == args.places.size();
  for (size_t i = 0; same && i < args.places.size(); ++i) {
    same = in.equal(loop->changed[i], args.places[i]);
  }
  loop->asked = true;
  loop->changed = args.places;
  return Value(!same);
}

// next() and reset().
Value call_cycler_method(Interpreter& in, const Method& method, const Arguments& args) {
  (void)bind(in, method.name.c_str(), args, "");
  Cycler& cycler = *method.self.cycler;
  const size_t at = cycler.next;
  cycler.next = method.name == "next" ? (at + 1) % cycler.items.size() : 0;
  return method.name == "next" ? cycler.items[at] : none();
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  switch (value.kind) {
    case Kind::kString:
      return has_string_method(name);
    case Kind::kBytes:
      return name == "decode" || name == "hex";
    case Kind::kDict:
      return is_one_of(kDictMethods, name);
    case Kind::kSequence:
      return value.sequence->flavor <= Flavor::kTuple &&
             (name == "index" || name == "count" ||
              (name == "copy" && value.sequence->flavor == Flavor::kList));
    case Kind::kLoop:
      return name == "cycle" || name == "changed";
    case Kind::kCycler:
      return !value.cycler->joins && (name == "next" || name == "reset");
    default:
      return false;
  }
}

Value call_method(Interpreter& in, const Method& method, const Arguments& args) {
  switch (method.self.kind) {
    case Kind::kString:
      return call_string_method(in, method.self, method.name, args);
    case Kind::kBytes:
      return call_bytes_method(in, method.self, method.name, args);
    case Kind::kDict:
      return call_dict_method(in, method, args);
    case Kind::kLoop:
      return call_loop_method(in, method, args);
    case Kind::kCycler:
      return call_cycler_method(in, method, args);
    default:
      return call_list_method(in, method, args);
  }
}

Value Interpreter::loop_attribute(Loop* loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop->index);
  const auto n = static_cast<int64_t>(loop->items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(n - index);
  if (name == "revindex0") return Value(n - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index == n - 1);
  if (name == "length") return Value(n);
  if (name == "depth") return Value(loop->depth);
  if (name == "depth0") return Value(loop->depth - 1);
  if (name == "previtem") {
    return index > 0 ? loop->items[loop->index - 1] : undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < n ? loop->items[loop->index + 1] : undefined("there is no next item");
  }
  return undefined(concat({"'LoopContext object' has no attribute '", name, "'"}));
}

Value Interpreter::attribute(const Value& value, std::string_view name) {
  if (!ok()) return {};
  if (value.is(Kind::kUndefined)) return fail_undefined(value);
  if (changes(value, name)) {
    return undefined("access to attribute '" + std::string(name) + "' of '" + type_name(value) +
                     "' object is unsafe.");
  }
  if (has_method(value, name)) {
    auto* method = make<Method>();
    method->self = value;
    method->name = name;
    return Value(method);
  }
  if (value.is(Kind::kLoop)) return loop_attribute(value.loop, name);
  if (value.is(Kind::kCycler) && !value.cycler->joins && name == "current") {
    return value.cycler->items[value.cycler->next];
  }
  if (value.is(Kind::kSequence) && value.sequence->group) {
    if (name == "grouper") return value.sequence->items[0];
    if (name == "list") return value.sequence->items[1];
  }
  if (value.is(Kind::kMacro) && name == "name") return text(value.macro->node->text);
  if (value.is(Kind::kMacro) && name == "arguments") {
    std::vector<Value> names;
    for (const Argument& each : value.macro->node->arguments) names.push_back(text(each.name));
    return sequence(std::move(names), Flavor::kTuple);
  }
  if (value.is(Kind::kDict) || value.is(Kind::kNamespace)) {
    const auto found = value.dict->by_name.find(name);
    if (found != value.dict->by_name.end()) return value.dict->entries[found->second].second;
  }
  return undefined(concat({"'", described(value), "' has no attribute '", name, "'"}));
}

Value Interpreter::item(const Value& value, const Value& key) {
  if (!ok()) return {};
  if (value.is(Kind::kUndefined)) return fail_undefined(value);
  if (value.is(Kind::kDict)) {
    if (const Value* found = find(*value.dict, key)) return *found;
  }
  if (key.is(Kind::kString)) return attribute(value, key.string->text.view());
  if (value.is(Kind::kBytes)) return fail("bytes can only be decoded");
  const bool indexed = value.is(Kind::kString) ||
                       (value.is(Kind::kSequence) && (value.sequence->flavor <= Flavor::kTuple ||
                                                      value.sequence->flavor == Flavor::kRange));
  if (indexed && key.is_whole()) {
    const bool is_text = value.is(Kind::kString);
    if (is_text) spend(value.string->text.size());
    const std::string_view bytes = is_text ? value.string->text.view() : std::string_view();
    const auto n =
        static_cast<int64_t>(is_text ? count_characters(bytes) : value.sequence->items.size());
    const int64_t at = key.whole() < 0 ? key.whole() + n : key.whole();
    if (at >= 0 && at < n && !is_text) return value.sequence->items[static_cast<size_t>(at)];
    if (at >= 0 && at < n) {
      const size_t begin = character_offset(bytes, static_cast<size_t>(at));
      const size_t end = begin + character_offset(bytes.substr(begin), 1);
      return text(value.string->text.slice(begin, end), value.string->markup);
    }
  }
  Text shown;
  print_repr(key, &shown);
  return undefined(concat({described(value), " has no element ", shown.view().substr(0, 80)}));
}

Value Interpreter::path(const Value& value, const Value& path, const Value* otherwise) {
  const auto found = [&](const Value& part) {
    return otherwise != nullptr && part.is(Kind::kUndefined) ? *otherwise : part;
  };
  if (!path.is(Kind::kString)) return found(item(value, path));
  Value at = value;
  const std::string_view names = path.string->text.view();
  spend(names.size());
  for (size_t from = 0; ok() && from <= names.size();) {
    const size_t dot = std::min(names.find('.', from), names.size());
    const std::string_view name = names.substr(from, dot - from);
    const std::optional<int64_t> index = read_whole(name);
    at = found(item(at, index ? Value(*index) : text(name)));
    from = dot + 1;
  }
  return at;
}

}  // namespace sluice::jinja
