// A JSON document as schemas need it: members in their order, numbers as they are written (a bound
// such as 0.1 has no exact double), and the way to a value, for errors. The parser of gguf/ keeps
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
inline constexpr size_t kMaxMembers = 4'000;  // of one object: each is looked for among the others

enum class JsonType : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

struct JsonValue {
  JsonType type = JsonType::kNull;
  bool truth = false;
  std::string key;   // as a member
  std::string text;  // of a string, decoded; of a number, as written
  uint32_t parent = kNoValue;
  uint32_t index = 0;  // in the parent
  std::vector<uint32_t> children;
};

class JsonDocument {
 public:
  // Errors: kGrammarSyntax with line and column.
  [[nodiscard]] static Result<JsonDocument> parse(std::string_view text);
  // The value that the text begins with, `*used` bytes of it.
  [[nodiscard]] static Result<JsonDocument> parse(std::string_view text, size_t* used);

  [[nodiscard]] const JsonValue& operator[](uint32_t v) const { return values_[v]; }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(values_.size()); }
  // The member of an object, or kNoValue (also where the value is no object).
  [[nodiscard]] uint32_t find(uint32_t object, std::string_view key) const;
  [[nodiscard]] std::string pointer(uint32_t v) const;  // "/properties/a~1b"; "" is the root
  // Equal as JSON Schema says: numbers by value, objects in any order.
  [[nodiscard]] bool equal(uint32_t a, uint32_t b) const;

 private:
  friend class JsonParser;
  std::vector<JsonValue> values_;
};

// A string as a JSON text in its shortest form, quotes included.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace sluice::grammar
