// Shapes for a negated schema: at least one of its keywords is violated, so they are the shapes of
// each keyword's opposite. Also tests whether values of the schema itself (enum, const) match a
// shape.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "grammar/schema_shapes.h"

namespace sluice::grammar {
namespace {

constexpr std::string_view kMeaningless[] = {
    "$schema",     "$id",         "$anchor",         "$dynamicAnchor",  "$comment", "$defs",
    "definitions", "title",       "description",     "default",         "examples", "deprecated",
    "readOnly",    "writeOnly",   "contentEncoding", "contentSchema",   "then",     "else",
    "$vocabulary", "minContains", "maxContains",     "contentMediaType"};

Shape of_type(uint8_t types) {
  Shape s;
  s.types = types;
  return s;
}

}  // namespace

Shapes SchemaShapes::negated_shapes(uint32_t schema) {
  const uint32_t ref = keyword(schema, "$ref");
  if (refs_.draft7() && ref != kNoValue) return negated_keyword(schema, ref);
  Shapes out;
  for (const uint32_t at : document_[schema].children) {
    const std::string& name = document_[at].key;
    if (std::find(std::begin(kMeaningless), std::end(kMeaningless), name) !=
        std::end(kMeaningless)) {
      continue;
    }
    const Shapes broken = negated_keyword(schema, at);
    out.insert(out.end(), broken.begin(), broken.end());
    if (failed()) return {};
  }
  return out;
}

Shapes SchemaShapes::negated_types(uint32_t at) {
  Shape own;
  apply_types(at, &own);
  Shapes out = {of_type(static_cast<uint8_t>(kAllBits & ~own.types))};
  if (own.whole) {
    out.push_back(of_type(kNumberBit));
    out.back().broken = true;
  }
  return out;
}

// minimum, maximum, exclusiveMinimum, exclusiveMaximum and multipleOf.
Shapes SchemaShapes::negated_number(uint32_t at) {
  const std::string& name = document_[at].key;
  const std::optional<Decimal> d = number(at);
  Shape s = of_type(kNumberBit);
  if (name == "multipleOf") {
    if (d) s.divisors.push_back({*d, true, at});
    return {s};
  }
  if (!d) return {};
  const bool low = name == "minimum" || name == "exclusiveMinimum";
  s.bounds.push_back({*d, low, name.starts_with("exclusive")});
  return {s};
}

// minLength, maxLength, minItems, maxItems, minProperties and maxProperties.
Shapes SchemaShapes::negated_count(uint32_t at) {
  struct Limit {
    std::string_view of;
    TypeBit type;
    uint32_t Shape::*least;
    uint32_t Shape::*most;
  };
  static constexpr Limit kLimits[] = {
      {"Length", kStringBit, &Shape::min_chars, &Shape::max_chars},
      {"Items", kArrayBit, &Shape::min_items, &Shape::max_items},
      {"Properties", kObjectBit, &Shape::min_members, &Shape::max_members}};
  const std::string& name = document_[at].key;
  const std::optional<uint32_t> n = count(at);
  const bool least = name.starts_with("min");
  if (!n || (least && *n == 0)) return {};
  for (const Limit& limit : kLimits) {
    if (!name.ends_with(limit.of)) continue;
    Shape s = of_type(limit.type);
    if (least)
      s.*limit.most = *n - 1;
    else
      s.*limit.least = *n + 1;
    if (limit.type == kObjectBit) s.min_members_at = at;
    return {s};
  }
  return {};
}

// required, properties and dependentRequired.
Shapes SchemaShapes::negated_members(uint32_t at) {
  const std::string& name = document_[at].key;
  Shapes out;
  for (const uint32_t child : document_[at].children) {
    if (name == "required") {
      out.push_back(of_type(kObjectBit));
      out.back().forbidden = {document_[child].text};
    } else if (name == "properties") {
      if (is(child, JsonType::kBoolean) && document_[child].truth) continue;
      out.push_back(of_type(kObjectBit));
      out.back().required = {document_[child].key};
      out.back().extra.push_back({document_[child].key, no(child)});
    } else {
      for (const uint32_t n : document_[child].children) {
        out.push_back(of_type(kObjectBit));
        out.back().required = {document_[child].key};
        out.back().forbidden = {document_[n].text};
      }
    }
  }
  return out;
}

Shapes SchemaShapes::negated_contains(uint32_t schema) {
  Shape own;
  apply_arrays(schema, &own);
  const Contains& c = own.contains[0];
  Shapes out;
  if (c.least > 0) {
    out.push_back(of_type(kArrayBit));
    out.back().contains.push_back({c.term, 0, c.least - 1});
  }
  if (c.most < UINT32_MAX) {
    out.push_back(of_type(kArrayBit));
    out.back().contains.push_back({c.term, c.most + 1, UINT32_MAX});
  }
  return out;
}

// anyOf, allOf, oneOf and if.
Shapes SchemaShapes::negated_combination(uint32_t schema, uint32_t at) {
  const std::string& name = document_[at].key;
  const auto append = [](Shapes* out, const Shapes& more) {
    out->insert(out->end(), more.begin(), more.end());
  };
  Shapes out;
  if (name == "if") {
    const uint32_t then = keyword(schema, "then"), other = keyword(schema, "else");
    if (then != kNoValue) out = product(shapes_of(yes(at)), shapes_of(no(then)), at);
    if (other != kNoValue) append(&out, product(shapes_of(no(at)), shapes_of(no(other)), at));
    return out;
  }
  const std::vector<uint32_t> branches = document_[at].children;
  if (name == "allOf") {
    for (const uint32_t child : branches) append(&out, shapes_of(no(child)));
    return out;
  }
  out = {Shape()};
  for (const uint32_t child : branches) out = product(out, shapes_of(no(child)), at);
  if (name == "anyOf") return out;
  for (size_t i = 0; i < branches.size(); ++i) {  // or two of oneOf
    for (size_t j = 0; j < i; ++j) {
      append(&out, product(shapes_of(yes(branches[i])), shapes_of(yes(branches[j])), at));
    }
  }
  return out;
}

Shapes SchemaShapes::negated_keyword(uint32_t schema, uint32_t at) {
  const std::string& name = document_[at].key;
  const auto among = [&name](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (name == "type") return negated_types(at);
  if (name == "const" || name == "enum") {
    Shape s;
    s.excluded = name == "const" ? std::vector<uint32_t>{at} : document_[at].children;
    return {s};
  }
  if (among({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) {
    return negated_number(at);
  }
  if (among({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})) {
    return negated_count(at);
  }
  if (name == "pattern") {
    Shape own;
    apply_strings(schema, &own);
    Shape s = of_type(kStringBit);
    if (!own.languages.empty()) s.languages.push_back({own.languages[0].automaton, true});
    return {s};
  }
  if (among({"required", "dependentRequired"}) ||
      (name == "properties" && is(at, JsonType::kObject))) {
    return negated_members(at);
  }
  if (name == "items" && !is(at, JsonType::kArray) && keyword(schema, "prefixItems") == kNoValue) {
    Shape s = of_type(kArrayBit);
    s.contains.push_back({no(at), 1, UINT32_MAX});
    return {s};
  }
  if (name == "contains") return negated_contains(schema);
  if (name == "$ref" && is(at, JsonType::kString)) {
    const uint32_t target = refs_.resolve(schema, document_[at].text);
    if (target != kNoValue) return shapes_of(no(target));
  }
  if (name == "not") return shapes_of(yes(at));
  if (among({"anyOf", "allOf", "oneOf", "if"})) return negated_combination(schema, at);
  if (among({"format", "prefixItems", "items", "uniqueItems", "additionalProperties",
             "additionalItems", "patternProperties", "propertyNames", "dependentSchemas",
             "dependencies", "unevaluatedProperties", "unevaluatedItems", "$ref", "$dynamicRef",
             "$recursiveRef"})) {
    refuse(at, "the negation of this keyword is not supported");
  }
  return {};  // an unknown keyword cannot be violated
}

// --- values in the schema (enum, const)

bool SchemaShapes::allows(const Conjunction& all, uint32_t value) {
  const Shapes shapes = shapes_of(all);
  return std::any_of(shapes.begin(), shapes.end(), [&](const Shape& s) { return fits(s, value); });
}

bool SchemaShapes::fits(const Shape& s, uint32_t value) {
  const JsonValue& v = document_[value];
  if (failed() || (s.types & type_bit(value)) == 0) return false;
  const auto equal = [&](uint32_t other) { return document_.equal(other, value); };
  if (s.values && std::none_of(s.values->begin(), s.values->end(), equal)) return false;
  if (std::any_of(s.excluded.begin(), s.excluded.end(), equal)) return false;
  if (v.type == JsonType::kNumber) {
    const std::optional<Decimal> d = Decimal::parse(v.text);
    if (!d || (s.whole && !d->whole()) || (s.broken && d->whole())) return false;
    for (const Bound& b : s.bounds) {
      const auto order = compare(*d, b.value);
      if (order == 0 ? !b.inclusive : b.below != (order < 0)) return false;
    }
    for (const Divisor& div : s.divisors) {
      const std::optional<std::string> text = plain(*d);
      const Dfa dfa = multiples(div.value);
      if (!text || dfa.too_large()) refuse(div.at, "this needs too many states");
      if (failed() || dfa.matches(*text) == div.negated) return false;
    }
    return true;
  }
  if (v.type == JsonType::kString) {
    const auto chars =
        static_cast<uint32_t>(std::count_if(v.text.begin(), v.text.end(), [](char c) {
          return (static_cast<uint8_t>(c) & 0xC0) != 0x80;
        }));
    if (chars < s.min_chars || chars > s.max_chars) return false;
    return std::all_of(s.languages.begin(), s.languages.end(), [&](const Language& l) {
      return automata_[l.automaton].matches(v.text) != l.negated;
    });
  }
  if (v.type == JsonType::kArray) return fits_array(s, value);
  return v.type != JsonType::kObject || fits_object(s, value);
}

bool SchemaShapes::fits_array(const Shape& s, uint32_t value) {
  const std::vector<uint32_t> items = document_[value].children;
  if (items.size() < s.min_items || items.size() > s.max_items) return false;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!allows(item(s, static_cast<uint32_t>(i)), items[i])) return false;
    for (size_t j = 0; s.unique_at != kNoValue && j < i; ++j) {
      if (document_.equal(items[i], items[j])) return false;
    }
  }
  return std::all_of(s.contains.begin(), s.contains.end(), [&](const Contains& c) {
    const auto n =
        std::count_if(items.begin(), items.end(), [&](uint32_t i) { return allows({c.term}, i); });
    if (narrowed_ && c.most != UINT32_MAX) refuse(c.term / 2, "this has too many alternatives");
    return n >= static_cast<int64_t>(c.least) && n <= static_cast<int64_t>(c.most);
  });
}

bool SchemaShapes::fits_object(const Shape& s, uint32_t value) {
  const std::vector<uint32_t> members = document_[value].children;
  if (members.size() < s.min_members || members.size() > s.max_members) return false;
  const auto absent = [&](const std::string& name) {
    return document_.find(value, name) == kNoValue;
  };
  if (std::any_of(s.required.begin(), s.required.end(), absent)) return false;
  return std::all_of(members.begin(), members.end(), [&](uint32_t m) {
    bool allowed = true;
    const Conjunction all = member_terms(s, document_[m].key, &allowed);
    return allowed && allows(all, m);
  });
}

}  // namespace sluice::grammar
