// Compiles a JSON schema to a grammar. Schemas become shapes (schema_shapes.h), and shapes become
// expressions (schema_scalars.cpp, objects.cpp) whose parts are conjunctions again. Each
// conjunction becomes one rule, so recursion works. A keyword that cannot be enforced is an error
// that names it; none is ignored.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/schema_shapes.h"

namespace sluice::grammar {

class SchemaCompiler : private SchemaShapes {
 public:
  // Rules are created in `builder`, which must outlive it.
  SchemaCompiler(JsonDocument document, const CompileOptions& options, Builder* builder);
  // Defines `rule` as a value of the document's root schema.
  [[nodiscard]] Status compile_into(uint32_t rule);

 private:
  // --- schema_scalars.cpp
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
  Expr other_members(const Shape& shape, const std::vector<std::string>& named);
  bool name_patterns(const Shape& shape, std::vector<uint32_t>* automata);
  std::optional<Dfa> allowed_names(const Shape& shape);
  bool pattern_terms(const Shape& shape, const std::vector<uint32_t>& patterns, uint32_t set,
                     Conjunction* all);
  bool exclude_names(const std::vector<std::string>& named, std::optional<Dfa>* language);
  std::vector<std::vector<std::string>> known_names(const Shape& shape);

  CompileOptions options_;
  std::map<Conjunction, uint32_t> rules_;
  std::vector<std::pair<Conjunction, uint32_t>> open_;
  uint32_t string_rule_ = UINT32_MAX, char_rule_ = UINT32_MAX, space_rule_ = UINT32_MAX;
};

}  // namespace sluice::grammar
