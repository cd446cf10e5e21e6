// Parses JSON from untrusted files with nlohmann/json, without exceptions. Small documents are
// parsed into a tree (parse_json, and getters that never assume a type). Large ones are streamed as
// scalars with their paths (walk_json), which holds one string at a time.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::hf {

using Json = nlohmann::json;

inline constexpr size_t kMaxJsonDocument = 8u << 20;  // its tree takes at most about 13 times that
inline constexpr size_t kMaxJsonStream = 128u << 20;
inline constexpr size_t kMaxJsonDepth = 32;

// Errors: kBadHeader, naming the file.
[[nodiscard]] Result<Json> parse_json(std::string_view text, const char* file);

// Members of an object. Null or empty when `object` is not an object, the key is missing or null,
// or the value has another type.
[[nodiscard]] const Json* json_find(const Json& object, const char* key);
[[nodiscard]] std::optional<int64_t> json_int(const Json& object, const char* key);
[[nodiscard]] std::optional<double> json_number(const Json& object, const char* key);
[[nodiscard]] std::optional<bool> json_bool(const Json& object, const char* key);
[[nodiscard]] std::optional<std::string_view> json_string(const Json& object, const char* key);

// A scalar of a streamed document.
struct JsonScalar {
  enum class Kind { kNull, kBool, kInteger, kFloat, kString };
  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;  // also set for integers
  std::string_view text{};
};

// The path of a scalar: the keys of its containers, outermost first, then its own key. Array
// indices are decimal digits.
using JsonPath = std::vector<std::string>;

class JsonVisitor {
 public:
  // Returning false ends the walk; the visitor keeps the reason.
  virtual bool scalar(const JsonPath& path, const JsonScalar& value) = 0;
  // Called at the end of an object or array, with its path.
  virtual bool end(const JsonPath& path) {
    (void)path;
    return true;
  }

 protected:
  ~JsonVisitor() = default;
};

// Returns false when the visitor ended the walk. Errors: kBadHeader for invalid JSON, naming the
// file.
[[nodiscard]] Result<bool> walk_json(std::string_view text, const char* file, JsonVisitor* visitor);

}  // namespace sluice::hf
