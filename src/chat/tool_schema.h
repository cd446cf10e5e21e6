// JSON schemas of tools, for models that write each parameter separately instead of as one JSON
// object. Determines the types of a value and what a parameter's text may be. A keyword that cannot
// be enforced is an error that names it, as in src/grammar.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::chat {

// Sets of types of JSON values; integers are numbers.
using TypeSet = uint8_t;
inline constexpr TypeSet kStringType = 1, kNumberType = 2, kBooleanType = 4, kObjectType = 8,
                         kArrayType = 16, kNullType = 32, kUnknownType = 64, kAllTypes = 63;
[[nodiscard]] TypeSet type_of(std::string_view value);

// The types that a value of `schema` may have; nullopt: not specified. Both are JSON texts; `root`
// is what references point into.
[[nodiscard]] std::optional<TypeSet> types_of(std::string_view schema, std::string_view root);

// A parameter of a function.
struct Parameter {
  std::string name;
  bool required = false;
  // Strings, which are written without quotes: any string, or one of these.
  bool any_text = false;
  std::vector<std::string> texts;
  std::vector<std::string> values;  // schemas of values that are written as JSON
};

// The parameters of a function, in order. `strict`: with their full schemas; otherwise only types.
// Errors: kSchemaUnsupported.
[[nodiscard]] Result<std::vector<Parameter>> parameters_of(std::string_view schema, bool strict);

// The error for a schema that cannot be enforced at this JSON pointer.
[[nodiscard]] Status unsupported(const std::string& where, const std::string& why);

}  // namespace sluice::chat
