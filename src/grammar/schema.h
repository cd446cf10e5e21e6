// Compiles a JSON schema to a grammar. A set of schemas that a value must satisfy (a conjunction of
// schemas, each plain or negated) becomes a list of shapes (schema_normalize.cpp). Shapes are
// alternatives without anyOf, allOf, $ref or if; each lists the constraints per type. Shapes become
// expressions (schema_scalars.cpp, objects.cpp) whose parts are conjunctions again. Each
// conjunction becomes one rule, so recursion works. A keyword that cannot be enforced is an error
// that names it; none is ignored.
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

// The schema's value index times two, plus one if it is negated.
using Term = uint32_t;
using Conjunction = std::vector<Term>;  // sorted, without duplicates
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
  uint32_t automaton;  // index in SchemaCompiler::automata_
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

class SchemaCompiler {
 public:
  // Rules are created in `builder`, which must outlive it.
  SchemaCompiler(JsonDocument document, const CompileOptions& options, Builder* builder);
  // Defines `rule` as a value of the document's root schema.
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

  // --- errors: the first one is kept, and later results are invalid
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
  std::vector<Term> path_;  // terms being expanded
  uint32_t string_rule_ = UINT32_MAX, char_rule_ = UINT32_MAX, space_rule_ = UINT32_MAX;
  bool unevaluated_ = false;  // it matters which branches hold, not only whether one does
  bool narrowed_ = false;     // some shapes exclude values that the schema allows
  uint32_t work_ = 0;
};

}  // namespace sluice::grammar
