// JSON from untrusted files, by nlohmann/json without exceptions. Two ways: a small document whole
// (parse_json and the getters, which never assume a type), and a large one as a stream of scalars
// with their paths (walk_json), which holds one string at a time instead of a tree.
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

inline constexpr size_t kMaxJsonDocument = 8u << 20;  // parsed whole: about 13 times that at worst
inline constexpr size_t kMaxJsonStream = 128u << 20;
inline constexpr size_t kMaxJsonDepth = 32;

// Errors: kBadHeader, naming the file.
[[nodiscard]] Result<Json> parse_json(std::string_view text, const char* file);

// Members of an object; null or empty when `object` is none, the key is absent or null, or the type
// is another.
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
  double number = 0;  // of integers too
  std::string_view text{};
};

// Where a scalar stands: the containers around it, outermost first, then its own key (or its index
// as decimal digits).
using JsonPath = std::vector<std::string>;

class JsonVisitor {
 public:
  // False ends the walk; the visitor keeps the reason.
  virtual bool scalar(const JsonPath& path, const JsonScalar& value) = 0;
  // The end of an object or array, whose path this is.
  virtual bool end(const JsonPath& path) {
    (void)path;
    return true;
  }

 protected:
  ~JsonVisitor() = default;
};

// False when the visitor ended the walk. Errors: kBadHeader for text that is not JSON, naming the
// file.
[[nodiscard]] Result<bool> walk_json(std::string_view text, const char* file, JsonVisitor* visitor);

}  // namespace sluice::hf
