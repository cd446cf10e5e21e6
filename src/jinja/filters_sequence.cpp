// Filters over iterables.
#include <algorithm>

#include "jinja/interpreter.h"

namespace sluice::jinja {
namespace {

Value length(Interpreter& in, const Value& value, const Arguments& args) {
  (void)bind(in, "length", args, "");
  switch (value.kind) {
    case Kind::kUndefined:
      return Value(int64_t{0});
    case Kind::kString:
      in.spend(value.string->text.size());
      return Value(static_cast<int64_t>(count_characters(value.string->text.view())));
    case Kind::kBytes:
      return Value(static_cast<int64_t>(value.string->text.size()));
    case Kind::kDict:
      return Value(static_cast<int64_t>(value.dict->entries.size()));
    case Kind::kSequence:
      if (value.sequence->flavor != Flavor::kGenerator) {
        return Value(static_cast<int64_t>(value.sequence->items.size()));
      }
      [[fallthrough]];
    default:
      return in.fail("object of type '%s' has no len()", type_name(value));
  }
}

Value list(Interpreter& in, const Value& value, const Arguments& args) {
  (void)bind(in, "list", args, "");
  return in.sequence(in.items(value));
}

Value first(Interpreter& in, const Value& value, const Arguments& args) {
  (void)bind(in, "first", args, "");
  if (value.is(Kind::kSequence)) {
    Sequence& sequence = *value.sequence;
    if (sequence.next >= sequence.items.size())
      return in.undefined("No first item, sequence was empty.");
    const Value found = sequence.items[sequence.next];
    if (sequence.flavor == Flavor::kGenerator) ++sequence.next;
    return found;
  }
  const std::vector<Value> items = in.items(value);
  return items.empty() ? in.undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter& in, const Value& value, const Arguments& args) {
  (void)bind(in, "last", args, "");
  if (value.is(Kind::kSequence) && value.sequence->flavor == Flavor::kGenerator) {
    return in.fail("'generator' object is not reversible");
  }
  const std::vector<Value> items = in.items(value);
  return items.empty() ? in.undefined("No last item, sequence was empty.") : items.back();
}

Value join(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "join", args, "d attribute");
  const Text separator = a[0] != nullptr ? in.str(*a[0]) : Text();
  const bool by_path = a[1] != nullptr && !a[1]->is(Kind::kNone);
  Text out;
  bool at_first = true;
  for (const Value& item : in.items(value)) {
    if (!std::exchange(at_first, false)) out.append(separator);
    in.print(by_path ? in.path(item, *a[1]) : item, &out);
    if (!in.spend(separator.size() + 16)) return {};
  }
  return in.text(std::move(out));
}

// The arguments after the first, which are passed on to the filter or test that is called.
Arguments from_second(const Arguments& args) {
  Arguments out;
  for (size_t i = 1; i < args.places.size(); ++i) out.places.push_back(args.places[i]);
  out.names = args.names;
  return out;
}

// map("filter", …) or map(attribute="path", default=…)
Value map(Interpreter& in, const Value& value, const Arguments& args) {
  if (value.is_absent()) return in.sequence({}, Flavor::kGenerator);
  std::vector<Value> out;
  if (!args.places.empty()) {
    const Value& name = args.places[0];
    if (!name.is(Kind::kString)) return in.fail("map() needs the name of a filter");
    const Arguments passed = from_second(args);
    for (const Value& item : in.items(value)) {
      if (!in.ok()) return {};
      out.push_back(in.filter(name.string->text.view(), item, passed));
    }
    return in.sequence(std::move(out), Flavor::kGenerator);
  }
  const auto a = bind(in, "map", args, "attribute default");
  if (a[0] == nullptr) return in.fail("map requires a filter argument");
  for (const Value& item : in.items(value)) {
    if (!in.ok()) return {};
    out.push_back(in.path(item, *a[0], a[1]));
  }
  return in.sequence(std::move(out), Flavor::kGenerator);
}

// The items for which a test's result equals `keep`. `by_path`: tests an attribute of each item.
Value selected(Interpreter& in, const Value& value, const Arguments& args, bool keep,
               bool by_path) {
  if (value.is_absent()) return in.sequence({}, Flavor::kGenerator);
  if (by_path && args.places.empty())
    return in.fail("selectattr() and rejectattr() need the name of an attribute");
  const Arguments rest = by_path ? from_second(args) : args;
  if (!rest.places.empty() && !rest.places[0].is(Kind::kString)) {
    return in.fail("the name of a test must be a string");
  }
  const Arguments passed = from_second(rest);
  std::vector<Value> out;
  for (const Value& item : in.items(value)) {
    if (!in.ok()) return {};
    const Value subject = by_path ? in.path(item, args.places[0]) : item;
    const bool truth = rest.places.empty()
                           ? in.truth(subject)
                           : in.test(rest.places[0].string->text.view(), subject, passed);
    if (truth == keep) out.push_back(item);
  }
  return in.sequence(std::move(out), Flavor::kGenerator);
}

Value select(Interpreter& in, const Value& value, const Arguments& args) {
  return selected(in, value, args, true, false);
}
Value reject(Interpreter& in, const Value& value, const Arguments& args) {
  return selected(in, value, args, false, false);
}
Value selectattr(Interpreter& in, const Value& value, const Arguments& args) {
  return selected(in, value, args, true, true);
}
Value rejectattr(Interpreter& in, const Value& value, const Arguments& args) {
  return selected(in, value, args, false, true);
}

Value items(Interpreter& in, const Value& value, const Arguments& args) {
  (void)bind(in, "items", args, "");
  if (value.is(Kind::kUndefined)) return in.sequence({}, Flavor::kGenerator);
  if (!is_mapping(value)) return in.fail("Can only get item pairs from a mapping.");
  std::vector<Value> out;
  for (const auto& [key, item] : value.dict->entries) {
    out.push_back(in.sequence({key, item}, Flavor::kTuple));
  }
  return in.sequence(std::move(out), Flavor::kGenerator);
}

// Sort key of an item: an attribute, several with commas between, or the item itself. Text is in
// lower case unless `cased`.
Value sort_key(Interpreter& in, const Value& item, const Value* path, bool cased) {
  const bool by_path = path != nullptr && !path->is(Kind::kNone);
  if (by_path && path->is(Kind::kString)) {
    const std::string_view names = path->string->text.view();
    size_t comma = names.find(',');
    std::vector<Value> keys;
    for (size_t from = 0; comma != std::string_view::npos && from <= names.size();) {
      comma = std::min(names.find(',', from), names.size());
      const Value name = in.text(names.substr(from, comma - from));
      keys.push_back(sort_key(in, item, &name, cased));
      from = comma + 1;
      if (!in.ok()) return {};
    }
    if (!keys.empty()) return in.sequence(std::move(keys));
  }
  const Value key = by_path ? in.path(item, *path) : item;
  if (cased || !key.is(Kind::kString)) return key;
  return in.text(to_lower(key.string->text.view()));
}

std::vector<Keyed> keyed(Interpreter& in, const std::vector<Value>& items, const Value* path,
                         bool cased) {
  std::vector<Keyed> out;
  for (const Value& item : items) {
    if (!in.spend(32)) break;
    out.push_back({sort_key(in, item, path, cased), item});
  }
  return out;
}

bool flag(Interpreter& in, const Value* value) {
  return value != nullptr && in.truth(*value);
}

std::vector<Value> only_items(const std::vector<Keyed>& from) {
  std::vector<Value> out;
  for (const Keyed& each : from) out.push_back(each.item);
  return out;
}

Value sort(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "sort", args, "reverse case_sensitive attribute");
  std::vector<Keyed> all = keyed(in, in.items(value), a[2], flag(in, a[1]));
  sort_keyed(in, &all, flag(in, a[0]));
  return in.sequence(only_items(all));
}

Value dictsort(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "dictsort", args, "case_sensitive by reverse");
  if (value.is(Kind::kUndefined)) return in.fail_undefined(value);
  if (!value.is(Kind::kDict))
    return in.fail("'%s' object has no attribute 'items'", type_name(value));
  const bool by_value =
      a[1] != nullptr && a[1]->is(Kind::kString) && a[1]->string->text.view() == "value";
  std::vector<Keyed> all;
  for (const auto& [key, item] : value.dict->entries) {
    const Value pair = in.sequence({key, item}, Flavor::kTuple);
    all.push_back({sort_key(in, by_value ? item : key, nullptr, flag(in, a[0])), pair});
  }
  sort_keyed(in, &all, flag(in, a[2]));
  return in.sequence(only_items(all));
}

Value unique(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "unique", args, "case_sensitive attribute");
  auto* seen = in.make<Dict>();
  std::vector<Value> out;
  for (const Keyed& each : keyed(in, in.items(value), a[1], flag(in, a[0]))) {
    if (!in.ok()) return {};
    if (in.find(*seen, each.key) != nullptr) continue;
    in.put(seen, each.key, Value(true));
    out.push_back(each.item);
  }
  return in.sequence(std::move(out), Flavor::kGenerator);
}

Value groupby(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "groupby", args, "attribute default case_sensitive");
  if (a[0] == nullptr) return in.fail("groupby() needs an attribute");
  std::vector<Keyed> all;
  for (const Value& item : in.items(value)) {
    if (!in.spend(32)) return {};
    all.push_back({sort_key(in, in.path(item, *a[0], a[1]), nullptr, flag(in, a[2])), item});
  }
  sort_keyed(in, &all, false);
  std::vector<Value> out;
  for (size_t i = 0; i < all.size() && in.ok();) {
    std::vector<Value> group = {all[i].item};
    const Keyed& first = all[i++];
    while (i < all.size() && in.equal(all[i].key, first.key)) group.push_back(all[i++].item);
    const Value members = in.sequence(std::move(group));
    out.push_back(in.sequence({in.path(first.item, *a[0], a[1]), members}, Flavor::kTuple));
    out.back().sequence->group = true;
  }
  return in.sequence(std::move(out));
}

Value extreme(Interpreter& in, const Value& value, const Arguments& args, bool largest) {
  const auto a = bind(in, largest ? "max" : "min", args, "case_sensitive attribute");
  const std::vector<Keyed> all = keyed(in, in.items(value), a[1], flag(in, a[0]));
  if (all.empty()) return in.undefined("No aggregated item, sequence was empty.");
  const Keyed* best = &all[0];
  for (const Keyed& each : all) {
    if (largest ? in.less(best->key, each.key) : in.less(each.key, best->key)) best = &each;
  }
  return best->item;
}
Value smallest(Interpreter& in, const Value& value, const Arguments& args) {
  return extreme(in, value, args, false);
}
Value largest(Interpreter& in, const Value& value, const Arguments& args) {
  return extreme(in, value, args, true);
}

Value sum(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "sum", args, "attribute start");
  const bool by_path = a[0] != nullptr && !a[0]->is(Kind::kNone);
  Value total = a[1] != nullptr ? *a[1] : Value(int64_t{0});
  for (const Value& item : in.items(value)) {
    if (in.ok()) total = in.binary("+", total, by_path ? in.path(item, *a[0]) : item);
  }
  return total;
}

Value reverse(Interpreter& in, const Value& value, const Arguments& args) {
  (void)bind(in, "reverse", args, "");
  std::vector<Value> items = in.items(value);
  std::reverse(items.begin(), items.end());
  if (!value.is(Kind::kString)) return in.sequence(std::move(items), Flavor::kGenerator);
  Text out;
  for (const Value& item : items) out.append(item.string->text);
  return in.text(std::move(out), value.string->markup);
}

Value batch(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "batch", args, "linecount fill_with");
  const int64_t size = whole_or(in, a[0], 0);
  if (size < 1) return in.fail("batch() needs a positive number of items");
  std::vector<Value> out, row;
  const auto close = [&] {
    if (!row.empty()) out.push_back(in.sequence(std::exchange(row, {})));
  };
  for (const Value& item : in.items(value)) {
    row.push_back(item);
    if (static_cast<int64_t>(row.size()) == size) close();
  }
  const bool fills = a[1] != nullptr && !a[1]->is(Kind::kNone) && !row.empty();
  while (fills && static_cast<int64_t>(row.size()) < size && in.spend(16)) row.push_back(*a[1]);
  close();
  return in.sequence(std::move(out), Flavor::kGenerator);
}

// Divides the items into so many lists, the first ones longer by one.
Value slices(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "slice", args, "slices fill_with");
  const int64_t count = whole_or(in, a[0], 0);
  constexpr int64_t kMaxSlices = 100'000;
  if (count < 1 || count > kMaxSlices) return in.fail("slice() needs a positive number of lists");
  const std::vector<Value> items = in.items(value);
  const auto lists = static_cast<size_t>(count);
  const size_t each = items.size() / lists, longer = items.size() % lists;
  const bool fills = a[1] != nullptr && !a[1]->is(Kind::kNone);
  std::vector<Value> out;
  auto at = items.begin();
  for (size_t i = 0; i < lists && in.ok(); ++i) {
    const auto end = at + static_cast<ptrdiff_t>(each + (i < longer ? 1 : 0));
    std::vector<Value> row(at, end);
    at = end;
    if (fills && i >= longer && longer > 0) row.push_back(*a[1]);
    out.push_back(in.sequence(std::move(row)));
  }
  return in.sequence(std::move(out), Flavor::kGenerator);
}

Value attr(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "attr", args, "name");
  if (a[0] == nullptr || !a[0]->is(Kind::kString)) return in.fail("attr() needs a name");
  // Unlike a dot, attr() does not look up a dictionary's keys.
  if (value.is(Kind::kDict) && !has_method(value, a[0]->string->text.view())) {
    return in.undefined("'dict object' has no such attribute");
  }
  return in.attribute(value, a[0]->string->text.view());
}

constexpr NamedFilter kSequenceFilters[] = {
    {"length", length},
    {"count", length},
    {"list", list},
    {"first", first},
    {"last", last},
    {"join", join},
    {"map", map},
    {"select", select},
    {"reject", reject},
    {"items", items},
    {"selectattr", selectattr},
    {"rejectattr", rejectattr},
    {"sort", sort},
    {"dictsort", dictsort},
    {"unique", unique},
    {"min", smallest},
    {"max", largest},
    {"groupby", groupby},
    {"sum", sum},
    {"reverse", reverse},
    {"batch", batch},
    {"slice", slices},
    {"attr", attr},
};

}  // namespace

void sort_keyed(Values& values, std::vector<Keyed>* items, bool reverse) {
  const auto before = [&](const Keyed& a, const Keyed& b) {
    return values.ok() && (reverse ? values.less(b.key, a.key) : values.less(a.key, b.key));
  };
  std::vector<Keyed> other(items->size());
  for (size_t width = 1; width < items->size(); width *= 2) {
    for (size_t low = 0; low < items->size(); low += 2 * width) {
      const size_t middle = std::min(low + width, items->size());
      const size_t high = std::min(low + 2 * width, items->size());
      size_t a = low, b = middle;
      for (size_t i = low; i < high; ++i) {
        const bool right = a == middle || (b < high && before((*items)[b], (*items)[a]));
        other[i] = (*items)[right ? b++ : a++];
      }
    }
    items->swap(other);
  }
}

Filter find_sequence_filter(std::string_view name) {
  for (const NamedFilter& each : kSequenceFilters) {
    if (each.name == name) return each.filter;
  }
  return nullptr;
}

}  // namespace sluice::jinja
