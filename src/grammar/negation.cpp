// Shapes for a negated schema: at least one of its keywords is violated, so they are the shapes of
// each keyword's opposite. Also tests whether values of the schema itself (enum, const) match a
// shape.
#include <algorithm>
#include <string>

#include "grammar/schema.h"

namespace sluice::grammar {
namespace {

constexpr std::string_view kMeaningless[] = {
    "$schema",     "$id",         "$anchor",         "$dynamicAnchor",  "$comment", "$defs",
    "definitions", "title",       "description",     "default",         "examples", "deprecated",
    "readOnly",    "writeOnly",   "contentEncoding", "contentSchema",   "then",     "else",
    "$vocabulary", "minContains", "maxContains",     "contentMediaType"};

}  // namespace

Shapes SchemaCompiler::negated_shapes(uint32_t schema) {
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

Shapes SchemaCompiler::negated_keyword(uint32_t schema, uint32_t at) {
  const std::string& name = document_[at].key;
  const auto of_type = [](uint8_t types) {
    Shape s;
    s.types = types;
    return s;
  };
  // The shape of this keyword only, to be inverted.
  Shape own;
  if (name == "type") {
    apply_types(at, &own);
    Shapes out = {of_type(static_cast<uint8_t>(kAllBits & ~own.types))};
    if (own.whole) {
      out.push_back(of_type(kNumberBit));
      out.back().broken = true;
    }
    return out;
  }
  if (name == "const" || name == "enum") {
    Shape s;
    s.excluded = name == "const" ? std::vector<uint32_t>{at} : document_[at].children;
    return {s};
  }
  if (name == "minimum" || name == "maximum" || name == "exclusiveMinimum" ||
      name == "exclusiveMaximum") {
    const std::optional<Decimal> d = number(at);
    if (!d) return {};
    Shape s = of_type(kNumberBit);
    const bool low = name == "minimum" || name == "exclusiveMinimum";
    s.bounds.push_back({*d, low, name.starts_with("exclusive")});
    return {s};
  }
  if (name == "multipleOf") {
    const std::optional<Decimal> d = number(at);
    Shape s = of_type(kNumberBit);
    if (d) s.divisors.push_back({*d, true, at});
    return {s};
  }
  const auto limit = [&](uint8_t type, uint32_t Shape::*least, uint32_t Shape::*most) -> Shapes {
    const std::optional<uint32_t> n = count(at);
    Shape s = of_type(type);
    if (!n || (name.starts_with("min") && *n == 0)) return {};
    if (name.starts_with("min"))
      s.*most = *n - 1;
    else
      s.*least = *n + 1;
    return {s};
  };
  if (name == "minLength" || name == "maxLength") {
    return limit(kStringBit, &Shape::min_chars, &Shape::max_chars);
  }
  if (name == "minItems" || name == "maxItems") {
    return limit(kArrayBit, &Shape::min_items, &Shape::max_items);
  }
  if (name == "minProperties" || name == "maxProperties") {
    Shapes out = limit(kObjectBit, &Shape::min_members, &Shape::max_members);
    for (Shape& s : out) s.min_members_at = at;
    return out;
  }
  if (name == "pattern") {
    apply_strings(schema, &own);
    Shape s = of_type(kStringBit);
    if (!own.languages.empty()) s.languages.push_back({own.languages[0].automaton, true});
    return {s};
  }
  if (name == "required") {
    Shapes out;
    for (const uint32_t n : document_[at].children) {
      out.push_back(of_type(kObjectBit));
      out.back().forbidden = {document_[n].text};
    }
    return out;
  }
  if (name == "properties" && is(at, JsonType::kObject)) {
    Shapes out;
    for (const uint32_t child : document_[at].children) {
      if (is(child, JsonType::kBoolean) && document_[child].truth) continue;
      out.push_back(of_type(kObjectBit));
      out.back().required = {document_[child].key};
      out.back().extra.push_back({document_[child].key, no(child)});
    }
    return out;
  }
  if (name == "items" && !is(at, JsonType::kArray) && keyword(schema, "prefixItems") == kNoValue) {
    Shape s = of_type(kArrayBit);
    s.contains.push_back({no(at), 1, UINT32_MAX});
    return {s};
  }
  if (name == "contains") {
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
  if (name == "$ref" && is(at, JsonType::kString)) {
    const uint32_t target = refs_.resolve(schema, document_[at].text);
    if (target != kNoValue) return shapes_of(no(target));
  }
  if (name == "not") return shapes_of(yes(at));
  if (name == "anyOf" || name == "allOf") {
    Shapes out = name == "anyOf" ? Shapes{Shape()} : Shapes{};
    for (const uint32_t child : document_[at].children) {
      const Shapes broken = shapes_of(no(child));
      if (name == "anyOf")
        out = product(out, broken, at);
      else
        out.insert(out.end(), broken.begin(), broken.end());
    }
    return out;
  }
  if (name == "oneOf") {  // none of the branches, or two of them
    Shapes out = {Shape()};
    const std::vector<uint32_t> branches = document_[at].children;
    for (const uint32_t child : branches) out = product(out, shapes_of(no(child)), at);
    for (size_t i = 0; i < branches.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const Shapes both = product(shapes_of(yes(branches[i])), shapes_of(yes(branches[j])), at);
        out.insert(out.end(), both.begin(), both.end());
      }
    }
    return out;
  }
  if (name == "if") {
    const uint32_t then = keyword(schema, "then"), other = keyword(schema, "else");
    Shapes out;
    if (then != kNoValue) out = product(shapes_of(yes(at)), shapes_of(no(then)), at);
    if (other != kNoValue) {
      const Shapes more = product(shapes_of(no(at)), shapes_of(no(other)), at);
      out.insert(out.end(), more.begin(), more.end());
    }
    return out;
  }
  if (name == "dependentRequired") {
    Shapes out;
    for (const uint32_t child : document_[at].children) {
      for (const uint32_t n : document_[child].children) {
        out.push_back(of_type(kObjectBit));
        out.back().required = {document_[child].key};
        out.back().forbidden = {document_[n].text};
      }
    }
    return out;
  }
  for (const char* known :
       {"format", "prefixItems", "items", "uniqueItems", "additionalProperties", "additionalItems",
        "patternProperties", "propertyNames", "dependentSchemas", "dependencies",
        "unevaluatedProperties", "unevaluatedItems", "$ref", "$dynamicRef", "$recursiveRef"}) {
    if (name == known) refuse(at, "the negation of this keyword is not supported");
  }
  return {};  // an unknown keyword cannot be violated
}

// --- values in the schema (enum, const)

bool SchemaCompiler::allows(const Conjunction& all, uint32_t value) {
  const Shapes shapes = shapes_of(all);
  return std::any_of(shapes.begin(), shapes.end(), [&](const Shape& s) { return fits(s, value); });
}

bool SchemaCompiler::fits(const Shape& s, uint32_t value) {
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

bool SchemaCompiler::fits_array(const Shape& s, uint32_t value) {
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

bool SchemaCompiler::fits_object(const Shape& s, uint32_t value) {
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
