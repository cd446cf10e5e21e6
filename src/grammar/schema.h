// JSON Schema to a grammar. A set of schemas that a value has to satisfy (a conjunction of schemas,
// each as it is or negated) becomes a list of shapes: alternatives without anyOf, allOf, $ref or
// if, each saying for every type what remains (schema_normalize.cpp). A shape is then written as
// expressions (schema_scalars.cpp), whose parts are conjunctions again, each a rule made once:
// recursion comes out by itself. What cannot be promised is refused by its keyword; nothing is ever
// left out.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/builder.h"
#include "grammar/decimal.h"
#include "grammar/dfa.h"
#include "grammar/json.h"
#include "grammar/schema_refs.h"

namespace sluice::grammar {

// A schema's value times two, plus one where it is negated.
using Term = uint32_t;
using Conjunction = std::vector<Term>;  // sorted, without doubles
inline constexpr Term kNoTerm = UINT32_MAX;

enum TypeBit : uint8_t {
  kNullBit = 1,
  kTrueBit = 2,
  kFalseBit = 4,
  kNumberBit = 8,
  kStringBit = 16,
  kArrayBit = 32,
  kObjectBit = 64,
  kAllBits = 127,
};

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
  uint32_t automaton;  // of SchemaCompiler::automata_
  bool negated;
};
// What one schema says of items.
struct ItemPart {
  std::vector<Term> prefix;
  Term rest = kNoTerm;
  bool silent = false;  // of a negation: what it looks at is not evaluated
  bool operator==(const ItemPart&) const = default;
};
struct Contains {
  Term term;
  uint32_t least, most;
  bool silent = false;  // of a negation
};
// What one schema says of members: those that it names, those that match its patterns, the others.
struct MemberPart {
  std::vector<uint32_t> named;     // values of `properties`
  std::vector<uint32_t> patterns;  // values of `patternProperties`
  Term rest = kNoTerm;
  bool silent = false;  // of a negation
  bool operator==(const MemberPart&) const = default;
};
struct Member {
  std::string name;
  Term term;
};

struct Shape {
  uint8_t types = kAllBits;
  bool whole = false, broken = false;           // numbers: integers only, no integers
  std::optional<std::vector<uint32_t>> values;  // no others
  std::vector<uint32_t> excluded;
  std::vector<Bound> bounds;
  std::vector<Divisor> divisors;
  uint32_t min_chars = 0, max_chars = UINT32_MAX;
  std::vector<Language> languages;
  uint32_t min_items = 0, max_items = UINT32_MAX;
  std::vector<ItemPart> items;
  std::vector<Contains> contains;
  bool counted_items = false;     // arrays are meant, though other types would do
  uint32_t unique_at = kNoValue;  // the keyword `uniqueItems`
  uint32_t min_members = 0, max_members = UINT32_MAX;
  uint32_t min_members_at = kNoValue;
  std::vector<std::string> required, forbidden;
  std::vector<MemberPart> members;
  std::vector<Member> extra;
  std::vector<Term> names;  // what every name satisfies
};
using Shapes = std::vector<Shape>;

class SchemaCompiler {
 public:
  // Its rules are made in `builder`, which outlives it.
  SchemaCompiler(JsonDocument document, const CompileOptions& options, Builder* builder);
  // Defines `rule` as a value of the document's schema.
  [[nodiscard]] Status compile_into(uint32_t rule);

 private:
  // --- schema_normalize.cpp, negation.cpp
  Shapes shapes_of(Term term);
  Shapes shapes_of(const Conjunction& all);
  Shapes schema_shapes(uint32_t schema);
  Shapes negated_shapes(uint32_t schema);
  Shapes negated_keyword(uint32_t schema, uint32_t at);
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
  bool fits(const Shape& shape, uint32_t value);
  bool allows(const Conjunction& all, uint32_t value);
  bool fits_array(const Shape& shape, uint32_t value);
  bool fits_object(const Shape& shape, uint32_t value);
  uint8_t type_bit(uint32_t value) const;
  std::optional<uint32_t> count(uint32_t at);
  std::optional<Decimal> number(uint32_t at);
  uint32_t automaton(std::string_view pattern, bool search, uint32_t longest, uint32_t at);
  uint32_t pattern_of(uint32_t member);  // automaton of a name in patternProperties

  // --- schema_scalars.cpp, objects.cpp
  Expr value(const Conjunction& all);
  void emit_rule(const Conjunction& all, uint32_t rule);
  Expr emit_shape(const Shape& shape);
  Expr emit_values(const Shape& shape);
  Expr emit_value(uint32_t value);
  Expr emit_number(const Shape& shape);
  Expr emit_string(const Shape& shape);
  Expr emit_array(const Shape& shape);
  Expr emit_counted(const Shape& shape);
  Expr emit_unique(const Shape& shape);
  std::vector<Expr> kinds(const Shape& shape);
  Expr emit_object(const Shape& shape);
  Expr emit_members(const Shape& shape, const std::vector<std::string>& names, Expr other);
  Expr any_string();
  Expr string_char();
  Expr space();
  Expr comma();
  Expr member(std::string_view name, const Conjunction& all);
  Conjunction item(const Shape& shape, uint32_t index) const;
  Conjunction member_terms(const Shape& shape, const std::string& name, bool* allowed);
  std::optional<Dfa> string_language(const Shape& shape);
  std::optional<Dfa> name_language(const Shape& shape);
  Expr other_members(const Shape& shape, const std::vector<std::string>& named);
  std::vector<std::vector<std::string>> known_names(const Shape& shape);

  // --- errors: the first one stays, and what is made after it is worthless
  void refuse(uint32_t at, const char* why);
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  [[nodiscard]] bool failed() const { return !status_.ok() || builder_.full(); }
  uint32_t keyword(uint32_t schema, std::string_view name) const {
    return document_.find(schema, name);
  }
  bool is(uint32_t at, JsonType type) const { return at != kNoValue && document_[at].type == type; }
  static Term yes(uint32_t schema) { return schema * 2; }
  static Term no(uint32_t schema) { return schema * 2 + 1; }

  JsonDocument document_;
  SchemaRefs refs_;
  CompileOptions options_;
  Builder& builder_;
  Status status_;
  std::vector<Dfa> automata_;
  std::map<std::string, uint32_t> automaton_of_;
  std::map<Conjunction, uint32_t> rules_;
  std::vector<std::pair<Conjunction, uint32_t>> open_;
  std::vector<Term> path_;  // terms that are being taken apart
  uint32_t string_rule_ = UINT32_MAX, char_rule_ = UINT32_MAX, space_rule_ = UINT32_MAX;
  bool unevaluated_ = false;  // which branches hold matters, not only that one does
  bool narrowed_ = false;     // some shapes leave out values that they could have
  uint32_t work_ = 0;
};

}  // namespace sluice::grammar
