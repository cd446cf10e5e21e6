// JSON as text: checks a value and finds its parts without converting them. Requests and model
// output keep their own spelling this way, including numbers that no C++ type can hold. All
// functions but the first two take valid JSON; for other text they return something, but nothing
// useful.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

inline constexpr size_t kMaxJsonDepth = 200;

enum class JsonCheck : uint8_t { kValid, kInvalid, kTooDeep };
// Whether the text is one JSON value (RFC 8259), nested at most kMaxJsonDepth deep.
[[nodiscard]] JsonCheck check_json(std::string_view text);
[[nodiscard]] inline bool is_json(std::string_view text) {
  return check_json(text) == JsonCheck::kValid;
}

enum class JsonType : uint8_t { kNone, kNull, kBoolean, kNumber, kString, kArray, kObject };
// By the first character; kNone if there is none.
[[nodiscard]] JsonType json_type(std::string_view value);

struct JsonMember {
  std::string name;
  std::string_view value;
};
// The members of an object in order; empty for other values.
[[nodiscard]] std::vector<JsonMember> json_members(std::string_view value);
// The last member of that name; nullopt if there is none.
[[nodiscard]] std::optional<std::string_view> json_member(std::string_view value,
                                                          std::string_view name);
// The items of an array; empty for other values.
[[nodiscard]] std::vector<std::string_view> json_items(std::string_view value);
// The text of a string, with half a surrogate pair as U+FFFD; "" for other values.
[[nodiscard]] std::string json_string(std::string_view value);
// The value without white space between its parts.
[[nodiscard]] std::string json_compact(std::string_view value);
// The text as a JSON string.
[[nodiscard]] std::string json_quote(std::string_view text);
// Appends an item to the text of an array, without its brackets.
inline void append_json_item(std::string_view item, std::string* items) {
  if (!items->empty()) *items += ',';
  *items += item;
}

// Appends a character in UTF-8; half a surrogate pair, and what is no character, as U+FFFD.
void append_code_point(uint32_t code, std::string* out);

}  // namespace sluice
