// A JSON document as schemas need it: members in order, numbers as written (a bound such as 0.1 has
// no exact double), and the JSON pointer of each value for errors. The parser of gguf/ keeps
// neither.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::grammar {

inline constexpr uint32_t kNoValue = UINT32_MAX;
inline constexpr size_t kMaxValues = 50'000;
inline constexpr size_t kMaxMembers = 4'000;  // per object, since members are searched linearly

enum class JsonType : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

struct JsonValue {
  JsonType type = JsonType::kNull;
  bool truth = false;
  std::string key;   // member name
  std::string text;  // decoded string, or number as written
  uint32_t parent = kNoValue;
  uint32_t index = 0;  // in the parent
  std::vector<uint32_t> children;
};

class JsonDocument {
 public:
  // Errors: kGrammarSyntax with line and column.
  [[nodiscard]] static Result<JsonDocument> parse(std::string_view text);
  // Parses the value at the beginning of the text; *used is its length in bytes.
  [[nodiscard]] static Result<JsonDocument> parse(std::string_view text, size_t* used);

  [[nodiscard]] const JsonValue& operator[](uint32_t v) const { return values_[v]; }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(values_.size()); }
  // The member of an object; kNoValue if missing or not an object.
  [[nodiscard]] uint32_t find(uint32_t object, std::string_view key) const;
  [[nodiscard]] std::string pointer(uint32_t v) const;  // "/properties/a~1b"; "" is the root
  // Equality of JSON Schema: numbers by value, members in any order.
  [[nodiscard]] bool equal(uint32_t a, uint32_t b) const;

 private:
  friend class JsonParser;
  std::vector<JsonValue> values_;
};

// A string as JSON text in its shortest form, with quotes.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace sluice::grammar
