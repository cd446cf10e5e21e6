// Expands a set of schemas that a value must satisfy (a conjunction of schemas, each plain or
// negated) to a list of shapes. Shapes are alternatives without anyOf, allOf, $ref or if; each
// lists the constraints per type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/schema_reader.h"

namespace sluice::grammar {

using Conjunction = std::vector<Term>;  // sorted, without duplicates
inline constexpr Term kNoTerm = UINT32_MAX;

struct Bound {
  Decimal value;
  bool below, inclusive;
};
struct Divisor {
  Decimal value;
  bool negated;
  uint32_t at;  // the keyword, for errors
};
struct Language {
  uint32_t automaton;  // index in SchemaReader::automata_
  bool negated;
};
// Constraints of one schema on array items.
struct ItemPart {
  std::vector<Term> prefix;
  Term rest = kNoTerm;
  bool silent = false;  // from a negation: does not mark items as evaluated
  bool operator==(const ItemPart&) const = default;
};
struct Contains {
  Term term;
  uint32_t least, most;
  bool silent = false;  // from a negation
};
// Constraints of one schema on members: named ones, ones that match its patterns, and the rest.
struct MemberPart {
  std::vector<uint32_t> named;     // values of `properties`
  std::vector<uint32_t> patterns;  // values of `patternProperties`
  Term rest = kNoTerm;
  bool silent = false;  // from a negation
  bool operator==(const MemberPart&) const = default;
};
struct Member {
  std::string name;
  Term term;
};

struct Shape {
  uint8_t types = kAllBits;
  bool whole = false, broken = false;           // numbers: only integers; no integers
  std::optional<std::vector<uint32_t>> values;  // only these values
  std::vector<uint32_t> excluded;
  std::vector<Bound> bounds;
  std::vector<Divisor> divisors;
  uint32_t min_chars = 0, max_chars = UINT32_MAX;
  std::vector<Language> languages;
  uint32_t min_items = 0, max_items = UINT32_MAX;
  std::vector<ItemPart> items;
  std::vector<Contains> contains;
  bool counted_items = false;     // arrays are intended, though the schema allows other types
  uint32_t unique_at = kNoValue;  // the keyword `uniqueItems`
  uint32_t min_members = 0, max_members = UINT32_MAX;
  uint32_t min_members_at = kNoValue;
  std::vector<std::string> required, forbidden;
  std::vector<MemberPart> members;
  std::vector<Member> extra;
  std::vector<Term> names;  // terms that every name satisfies
};
using Shapes = std::vector<Shape>;

class SchemaShapes : protected SchemaReader {
 protected:
  SchemaShapes(JsonDocument document, Builder* builder)
      : SchemaReader(std::move(document), builder) {}

  Shapes shapes_of(Term term);
  Shapes shapes_of(const Conjunction& all);
  // Whether a value of the schema itself matches a shape.
  bool fits(const Shape& shape, uint32_t value);

  // --- schema_scalars.cpp, objects.cpp: what a shape says of parts of a value
  Conjunction item(const Shape& shape, uint32_t index) const;
  Conjunction member_terms(const Shape& shape, const std::string& name, bool* allowed);
  std::optional<Dfa> string_language(const Shape& shape);
  std::optional<Dfa> name_language(const Shape& shape);

 private:
  // --- schema_normalize.cpp, negation.cpp
  Shapes schema_shapes(uint32_t schema);
  Shapes negated_shapes(uint32_t schema);
  Shapes negated_keyword(uint32_t schema, uint32_t at);
  Shapes negated_types(uint32_t at);
  Shapes negated_number(uint32_t at);
  Shapes negated_count(uint32_t at);
  Shapes negated_members(uint32_t at);
  Shapes negated_contains(uint32_t schema);
  Shapes negated_combination(uint32_t schema, uint32_t at);
  void apply_types(uint32_t at, Shape* shape);
  void apply_numbers(uint32_t schema, Shape* shape);
  void apply_strings(uint32_t schema, Shape* shape);
  void apply_arrays(uint32_t schema, Shape* shape);
  void apply_objects(uint32_t schema, Shape* shape);
  Shapes combined(uint32_t schema, Shapes shapes);
  Shapes any_of(uint32_t at, bool subsets);
  Shapes one_of(uint32_t at);
  Shapes conditional(uint32_t schema);
  Shapes dependencies(uint32_t at, Shapes shapes);
  Shapes unevaluated(uint32_t schema, Shapes shapes);
  Shapes product(const Shapes& a, const Shapes& b, uint32_t at);
  Shape merged(const Shape& a, const Shape& b);
  bool hopeless(const Shape& shape, int depth);
  bool hopeless(const Conjunction& all, int depth);
  bool allows(const Conjunction& all, uint32_t value);
  bool fits_array(const Shape& shape, uint32_t value);
  bool fits_object(const Shape& shape, uint32_t value);

  std::vector<Term> path_;    // terms being expanded
  bool unevaluated_ = false;  // it matters which branches hold, not only whether one does
  bool narrowed_ = false;     // some shapes exclude values that the schema allows
  uint32_t work_ = 0;
};

}  // namespace sluice::grammar
