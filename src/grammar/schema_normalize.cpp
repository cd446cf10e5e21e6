// Expands schemas to shapes: keywords of one type are collected, and keywords that combine schemas
// are multiplied out.
#include <algorithm>

#include "grammar/formats.h"
#include "grammar/schema_shapes.h"

namespace sluice::grammar {
namespace {

constexpr size_t kMaxShapes = 192;      // alternatives of one value
constexpr size_t kMaxPath = 64;         // nested in-place schemas
constexpr uint32_t kMaxWork = 400'000;  // merges per schema
constexpr size_t kMaxSubsets = 5;       // anyOf branches whose combinations are distinguished

template <typename T>
void append(std::vector<T>* to, const std::vector<T>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

void add_name(std::vector<std::string>* list, const std::string& name) {
  if (std::find(list->begin(), list->end(), name) == list->end()) list->push_back(name);
}

}  // namespace

Shapes SchemaShapes::shapes_of(const Conjunction& all) {
  std::vector<Term> path;  // a new value: the surrounding schemas do not apply in place
  std::swap(path, path_);
  const bool outer = unevaluated_;
  unevaluated_ = false;
  Shapes out = {Shape()};
  for (const Term t : all) out = product(out, shapes_of(t), t / 2);
  unevaluated_ = outer;
  std::swap(path, path_);
  return out;
}

Shapes SchemaShapes::shapes_of(Term term) {
  if (failed()) return {};
  const uint32_t schema = term / 2;
  const bool negated = (term & 1) != 0;
  if (is(schema, JsonType::kBoolean)) {
    return document_[schema].truth != negated ? Shapes{Shape()} : Shapes{};
  }
  if (!is(schema, JsonType::kObject)) {
    refuse(schema, "a schema must be an object, true or false");
    return {};
  }
  // A schema that refers to itself in place adds nothing; its negation is undefined.
  if (std::find(path_.begin(), path_.end(), term) != path_.end()) {
    if (negated) refuse(schema, "the negation of a schema that refers to itself is not supported");
    return {Shape()};
  }
  if (path_.size() >= kMaxPath) {
    refuse(schema, "schemas are nested too deeply");
    return {};
  }
  path_.push_back(term);
  const bool outer = unevaluated_;
  if (keyword(schema, "unevaluatedProperties") != kNoValue ||
      keyword(schema, "unevaluatedItems") != kNoValue) {
    unevaluated_ = true;
  }
  Shapes out = negated ? negated_shapes(schema) : schema_shapes(schema);
  for (Shape& s : out) {
    for (ItemPart& part : s.items) part.silent |= negated;
    for (MemberPart& part : s.members) part.silent |= negated;
    for (Contains& c : s.contains) c.silent |= negated;
  }
  unevaluated_ = outer;
  path_.pop_back();
  return out;
}

Shapes SchemaShapes::schema_shapes(uint32_t schema) {
  const uint32_t ref = keyword(schema, "$ref");
  if (refs_.draft7() && ref != kNoValue) return combined(schema, {Shape()});
  Shape shape;
  if (const uint32_t at = keyword(schema, "type"); at != kNoValue) apply_types(at, &shape);
  const uint32_t only = keyword(schema, "const"), some = keyword(schema, "enum");
  if (only != kNoValue)
    shape = merged(shape, [&] {
      Shape s;
      s.values = {only};
      return s;
    }());
  if (some != kNoValue) {
    if (!is(some, JsonType::kArray)) refuse(some, "enum must be a list");
    Shape s;
    s.values = document_[some].children;
    shape = merged(shape, s);
  }
  apply_numbers(schema, &shape);
  apply_strings(schema, &shape);
  apply_arrays(schema, &shape);
  apply_objects(schema, &shape);
  if (failed()) return {};
  return unevaluated(schema, combined(schema, {std::move(shape)}));
}

void SchemaShapes::apply_types(uint32_t at, Shape* shape) {
  std::vector<uint32_t> names = {at};
  if (is(at, JsonType::kArray)) names = document_[at].children;
  uint8_t types = 0;
  bool whole = false;
  for (const uint32_t n : names) {
    const std::string& name = document_[n].text;
    if (name == "null")
      types |= kNullBit;
    else if (name == "boolean")
      types |= kTrueBit | kFalseBit;
    else if (name == "number")
      types |= kNumberBit;
    else if (name == "integer")
      whole = true;
    else if (name == "string")
      types |= kStringBit;
    else if (name == "array")
      types |= kArrayBit;
    else if (name == "object")
      types |= kObjectBit;
    else
      refuse(n, "unknown type");
  }
  shape->whole |= whole && (types & kNumberBit) == 0;
  if (whole) types |= kNumberBit;
  shape->types &= types;
}

void SchemaShapes::apply_numbers(uint32_t schema, Shape* shape) {
  const auto bound = [&](const char* name, bool below, bool inclusive) {
    const uint32_t at = keyword(schema, name);
    if (at == kNoValue) return;
    // Draft 4 has booleans here.
    const std::optional<Decimal> d = number(at);
    if (d) shape->bounds.push_back({*d, below, inclusive});
  };
  bound("minimum", false, true);
  bound("exclusiveMinimum", false, false);
  bound("maximum", true, true);
  bound("exclusiveMaximum", true, false);
  const uint32_t at = keyword(schema, "multipleOf");
  const std::optional<Decimal> d = number(at);
  if (d && (d->zero() || d->negative)) refuse(at, "multipleOf must be greater than 0");
  if (d) shape->divisors.push_back({*d, false, at});
}

void SchemaShapes::apply_strings(uint32_t schema, Shape* shape) {
  if (const auto n = count(keyword(schema, "minLength"))) shape->min_chars = *n;
  if (const auto n = count(keyword(schema, "maxLength"))) shape->max_chars = *n;
  const uint32_t pattern = keyword(schema, "pattern");
  if (pattern != kNoValue) {
    if (!is(pattern, JsonType::kString)) refuse(pattern, "a pattern must be a string");
    shape->languages.push_back({automaton(document_[pattern].text, true, 0, pattern), false});
  }
  const uint32_t format = keyword(schema, "format");
  if (!is(format, JsonType::kString)) return;
  std::string regex;
  uint32_t longest = 0;
  switch (find_format(document_[format].text, &regex, &longest)) {
    case FormatKind::kKnown:
      shape->languages.push_back({automaton(regex, true, longest, format), false});
      break;
    case FormatKind::kRefused:
      refuse(format, "this format is not supported");
      break;
    case FormatKind::kAnnotation:
      break;
  }
}

void SchemaShapes::apply_arrays(uint32_t schema, Shape* shape) {
  if (const auto n = count(keyword(schema, "minItems"))) shape->min_items = *n;
  if (const auto n = count(keyword(schema, "maxItems"))) shape->max_items = *n;
  const uint32_t unique = keyword(schema, "uniqueItems");
  if (is(unique, JsonType::kBoolean) && document_[unique].truth) shape->unique_at = unique;
  // Without a type, `items` with minItems or maxItems means an array.
  const bool counted =
      keyword(schema, "minItems") != kNoValue || keyword(schema, "maxItems") != kNoValue;
  shape->counted_items =
      counted && keyword(schema, "items") != kNoValue && keyword(schema, "type") == kNoValue;
  ItemPart part;
  const auto later = [&](const char* name) {  // a keyword newer than draft 7
    return refs_.draft7() ? kNoValue : keyword(schema, name);
  };
  const uint32_t prefix = later("prefixItems"), items = keyword(schema, "items");
  uint32_t list = prefix, rest = items;
  if (is(items, JsonType::kArray)) {
    list = items;
    rest = keyword(schema, "additionalItems");
  }
  if (list != kNoValue) {
    for (const uint32_t child : document_[list].children) part.prefix.push_back(yes(child));
  }
  if (rest != kNoValue) part.rest = yes(rest);
  if (!(part == ItemPart())) shape->items.push_back(std::move(part));
  const uint32_t contains = keyword(schema, "contains");
  if (contains == kNoValue) return;
  const auto least = count(later("minContains")), most = count(later("maxContains"));
  shape->contains.push_back({yes(contains), least.value_or(1), most.value_or(UINT32_MAX)});
}

void SchemaShapes::apply_objects(uint32_t schema, Shape* shape) {
  const uint32_t least = keyword(schema, "minProperties");
  if (const auto n = count(least)) shape->min_members = *n, shape->min_members_at = least;
  if (const auto n = count(keyword(schema, "maxProperties"))) shape->max_members = *n;
  const uint32_t required = keyword(schema, "required");
  if (is(required, JsonType::kArray)) {
    for (const uint32_t name : document_[required].children) {
      add_name(&shape->required, document_[name].text);
    }
  }
  if (const uint32_t names = keyword(schema, "propertyNames"); names != kNoValue) {
    shape->names.push_back(yes(names));
  }
  MemberPart part;
  if (const uint32_t named = keyword(schema, "properties"); is(named, JsonType::kObject)) {
    part.named.push_back(named);
  }
  if (const uint32_t patterns = keyword(schema, "patternProperties");
      is(patterns, JsonType::kObject)) {
    part.patterns.push_back(patterns);
  }
  if (const uint32_t rest = keyword(schema, "additionalProperties"); rest != kNoValue) {
    part.rest = yes(rest);
  }
  if (!(part == MemberPart())) shape->members.push_back(std::move(part));
}

// Applies the keywords that combine schemas in place.
Shapes SchemaShapes::combined(uint32_t schema, Shapes shapes) {
  for (const char* name : {"$ref", "$dynamicRef", "$recursiveRef"}) {
    const uint32_t at = keyword(schema, name);
    if (!is(at, JsonType::kString)) continue;
    bool unclear = name[1] == 'r' && name[2] == 'e' && name[3] == 'c';
    const std::string& where = document_[at].text;
    const uint32_t target = name[1] == 'd' ? refs_.resolve_dynamic(schema, where, &unclear)
                                           : refs_.resolve(schema, where);
    if (unclear) refuse(at, "a dynamic reference that depends on the path to it is not supported");
    if (target == kNoValue) refuse(at, "this reference does not point into the document");
    if (failed()) return {};
    shapes = product(shapes, shapes_of(yes(target)), at);
    if (refs_.draft7()) return shapes;
  }
  if (const uint32_t all = keyword(schema, "allOf"); is(all, JsonType::kArray)) {
    for (const uint32_t s : document_[all].children)
      shapes = product(shapes, shapes_of(yes(s)), all);
  }
  if (const uint32_t any = keyword(schema, "anyOf"); is(any, JsonType::kArray)) {
    shapes = product(shapes, any_of(any, unevaluated_), any);
  }
  if (const uint32_t one = keyword(schema, "oneOf"); is(one, JsonType::kArray)) {
    shapes = product(shapes, one_of(one), one);
  }
  if (const uint32_t inner = keyword(schema, "not"); inner != kNoValue) {
    shapes = product(shapes, shapes_of(no(inner)), inner);
  }
  if (const uint32_t condition = keyword(schema, "if"); condition != kNoValue) {
    shapes = product(shapes, conditional(schema), condition);
  }
  for (const char* name : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const uint32_t at = keyword(schema, name);
    if (is(at, JsonType::kObject)) shapes = dependencies(at, std::move(shapes));
  }
  return shapes;
}

// The shapes of each branch. If it matters which branches hold, the shapes of each set of branches.
Shapes SchemaShapes::any_of(uint32_t at, bool subsets) {
  const std::vector<uint32_t> branches = document_[at].children;
  if (subsets && branches.size() > kMaxSubsets) {  // accept fewer texts, but no invalid ones
    subsets = false;
    narrowed_ = true;
  }
  Shapes out;
  const uint32_t n = static_cast<uint32_t>(branches.size());
  for (uint32_t set = 1; set < 1u << std::min(n, 20u) && subsets; ++set) {
    Shapes chosen = {Shape()};
    for (uint32_t i = 0; i < n; ++i) {
      if ((set >> i & 1) != 0) chosen = product(chosen, shapes_of(yes(branches[i])), at);
    }
    append(&out, chosen);
  }
  for (uint32_t i = 0; i < n && !subsets; ++i) append(&out, shapes_of(yes(branches[i])));
  if (out.size() > kMaxShapes) refuse(at, "this has too many alternatives");
  return out;
}

// Each branch without the others. Branches that exclude each other need no negation.
Shapes SchemaShapes::one_of(uint32_t at) {
  const std::vector<uint32_t> branches = document_[at].children;
  std::vector<Shapes> all;
  for (const uint32_t b : branches) all.push_back(shapes_of(yes(b)));
  Shapes out;
  for (size_t i = 0; i < branches.size() && !failed(); ++i) {
    Shapes alone = all[i];
    for (size_t j = 0; j < branches.size() && !failed(); ++j) {
      if (i == j) continue;
      const Shapes both = product(alone, all[j], at);
      const auto never = [&](const Shape& s) { return hopeless(s, 3); };
      if (!narrowed_ && std::all_of(both.begin(), both.end(), never)) continue;
      alone = product(alone, shapes_of(no(branches[j])), at);
    }
    append(&out, alone);
  }
  if (out.size() > kMaxShapes) refuse(at, "this has too many alternatives");
  return out;
}

Shapes SchemaShapes::conditional(uint32_t schema) {
  const uint32_t condition = keyword(schema, "if");
  const uint32_t then = keyword(schema, "then"), other = keyword(schema, "else");
  if (then == kNoValue && other == kNoValue && !unevaluated_) return {Shape()};
  Shapes held = shapes_of(yes(condition));
  if (then != kNoValue) held = product(held, shapes_of(yes(then)), then);
  Shapes out = shapes_of(no(condition));
  if (other != kNoValue) out = product(out, shapes_of(yes(other)), other);
  append(&out, held);
  return out;
}

// For each name: it is absent, or its dependency holds.
Shapes SchemaShapes::dependencies(uint32_t at, Shapes shapes) {
  for (const uint32_t child : document_[at].children) {
    Shape absent, present, other;
    absent.forbidden = {document_[child].key};
    absent.types = kObjectBit;
    present.required = {document_[child].key};
    present.types = kObjectBit;
    other.types = kAllBits & ~kObjectBit;
    Shapes holds = {present};
    if (is(child, JsonType::kArray)) {
      for (const uint32_t name : document_[child].children) {
        add_name(&holds[0].required, document_[name].text);
      }
    } else {
      holds = product(holds, shapes_of(yes(child)), child);
    }
    holds.push_back(absent);
    holds.push_back(other);
    shapes = product(shapes, holds, child);
  }
  return shapes;
}

// Applies unevaluatedProperties and unevaluatedItems: like additionalProperties and items, but
// beside everything that in-place schemas evaluate, which each shape records.
Shapes SchemaShapes::unevaluated(uint32_t schema, Shapes shapes) {
  const uint32_t members = keyword(schema, "unevaluatedProperties");
  const uint32_t items = keyword(schema, "unevaluatedItems");
  for (Shape& s : shapes) {
    if (members != kNoValue) {
      MemberPart part;
      part.rest = yes(members);
      bool all = false;
      for (const MemberPart& other : s.members) {
        if (other.silent) continue;
        append(&part.named, other.named);
        append(&part.patterns, other.patterns);
        all |= other.rest != kNoTerm;
      }
      // A name that appears only in combinations, such as in a negation, does not count.
      if (!all) {
        part.named.erase(std::unique(part.named.begin(), part.named.end()), part.named.end());
        s.members.push_back(part);
      }
    }
    if (items != kNoValue) {
      ItemPart part;
      part.rest = yes(items);
      bool all = false;
      for (const ItemPart& other : s.items) {
        if (other.silent) continue;
        all |= other.rest != kNoTerm;
        if (other.prefix.size() > part.prefix.size()) part.prefix.resize(other.prefix.size());
      }
      if (all) continue;
      std::fill(part.prefix.begin(), part.prefix.end(), kNoTerm);
      const bool none = is(items, JsonType::kBoolean) && !document_[items].truth;
      for (const Contains& c : s.contains) {
        if (c.silent || refs_.draft7()) continue;
        if (part.rest != yes(items) || !none) {
          refuse(items, "unevaluatedItems together with contains is not supported");
          return {};
        }
        part.rest = c.term;  // items that match contains, or none
      }
      s.items.push_back(part);
    }
  }
  return shapes;
}

Shapes SchemaShapes::product(const Shapes& a, const Shapes& b, uint32_t at) {
  Shapes out;
  if (failed()) return out;
  for (const Shape& x : a) {
    for (const Shape& y : b) {
      if (++work_ > kMaxWork) refuse(at, "the schema is too complex");
      Shape both = merged(x, y);
      if (!hopeless(both, 0)) out.push_back(std::move(both));
      if (out.size() > kMaxShapes) refuse(at, "this has too many alternatives");
      if (failed()) return {};
    }
  }
  return out;
}

Shape SchemaShapes::merged(const Shape& a, const Shape& b) {
  Shape s = a;
  s.types &= b.types;
  s.whole |= b.whole;
  s.broken |= b.broken;
  if (s.values && b.values) {
    std::erase_if(*s.values, [&](uint32_t v) {
      return std::none_of(b.values->begin(), b.values->end(),
                          [&](uint32_t w) { return document_.equal(v, w); });
    });
  } else if (b.values) {
    s.values = b.values;
  }
  append(&s.excluded, b.excluded);
  append(&s.bounds, b.bounds);
  append(&s.divisors, b.divisors);
  s.min_chars = std::max(s.min_chars, b.min_chars);
  s.max_chars = std::min(s.max_chars, b.max_chars);
  for (const Language& l : b.languages) {
    const auto same = [&l](const Language& o) {
      return o.automaton == l.automaton && o.negated == l.negated;
    };
    if (std::none_of(s.languages.begin(), s.languages.end(), same)) s.languages.push_back(l);
  }
  s.min_items = std::max(s.min_items, b.min_items);
  s.max_items = std::min(s.max_items, b.max_items);
  append(&s.items, b.items);
  append(&s.contains, b.contains);
  s.counted_items |= b.counted_items;
  if (s.unique_at == kNoValue) s.unique_at = b.unique_at;
  if (b.min_members > s.min_members) s.min_members_at = b.min_members_at;
  s.min_members = std::max(s.min_members, b.min_members);
  s.max_members = std::min(s.max_members, b.max_members);
  for (const std::string& n : b.required) add_name(&s.required, n);
  for (const std::string& n : b.forbidden) add_name(&s.forbidden, n);
  for (const MemberPart& p : b.members) {
    if (std::find(s.members.begin(), s.members.end(), p) == s.members.end()) s.members.push_back(p);
  }
  append(&s.extra, b.extra);
  append(&s.names, b.names);
  return s;
}

// True only if no value can match the shape. Does not detect all such shapes.
bool SchemaShapes::hopeless(const Shape& s, int depth) {
  uint8_t types = s.types;
  if (s.whole && s.broken) types &= static_cast<uint8_t>(~kNumberBit);
  if (s.min_chars > s.max_chars) types &= static_cast<uint8_t>(~kStringBit);
  if (s.min_items > s.max_items) types &= static_cast<uint8_t>(~kArrayBit);
  for (const Bound& low : s.bounds) {
    for (const Bound& high : s.bounds) {
      if (low.below || !high.below) continue;
      const auto order = compare(low.value, high.value);
      if (order > 0 || (order == 0 && !(low.inclusive && high.inclusive))) {
        types &= static_cast<uint8_t>(~kNumberBit);
      }
    }
  }
  if ((types & kObjectBit) != 0) {
    const auto absent = [&s](const std::string& name) {
      return std::find(s.forbidden.begin(), s.forbidden.end(), name) != s.forbidden.end();
    };
    bool none = s.min_members > s.max_members || s.required.size() > s.max_members ||
                std::any_of(s.required.begin(), s.required.end(), absent);
    for (size_t i = 0; depth > 0 && !none && !failed() && i < s.required.size(); ++i) {
      bool allowed = true;
      const Conjunction all = member_terms(s, s.required[i], &allowed);
      none = !allowed || hopeless(all, depth - 1);
    }
    if (none) types &= static_cast<uint8_t>(~kObjectBit);
  }
  if (depth > 0 && (types & kArrayBit) != 0) {
    for (uint32_t i = 0; i < std::min(s.min_items, 8u); ++i) {
      if (hopeless(item(s, i), depth - 1)) {
        types &= static_cast<uint8_t>(~kArrayBit);
        break;
      }
    }
  }
  if (!s.values) return types == 0;
  return std::none_of(s.values->begin(), s.values->end(), [&](uint32_t v) {
    return (type_bit(v) & types) != 0 && (depth == 0 || fits(s, v));
  });
}

bool SchemaShapes::hopeless(const Conjunction& all, int depth) {
  const Shapes shapes = shapes_of(all);
  return std::all_of(shapes.begin(), shapes.end(),
                     [&](const Shape& s) { return hopeless(s, depth); });
}

}  // namespace sluice::grammar
