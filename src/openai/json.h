// Parses the JSON body of a request. Depth, number of values and members per object are limited
// during parsing. What only passes through (messages, tools, schemas) is handed on as the text that
// the client sent: a number that is parsed and printed again can become another one.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "jinja/json_text.h"

namespace sluice::openai {

using Json = nlohmann::ordered_json;

inline constexpr size_t kMaxDepth = 64;
inline constexpr size_t kMaxValues = 1u << 18;
inline constexpr size_t kMaxMembers = 1100;  // of one object: member search is linear

// Errors: kInvalidArgument.
[[nodiscard]] Result<Json> parse_body(std::string_view text);

// The text with each escaped half of a surrogate pair, such as "\ud83d", replaced by \ufffd.
// JSON.stringify writes those for text that was cut inside an emoji, and JSON parsers refuse them.
[[nodiscard]] std::string replace_lone_surrogates(std::string_view text);

// The text of an object's member, as in the source; "" if it is absent or null. `object` must be
// text that parse_body() accepts. Of duplicate members, the last one counts.
[[nodiscard]] std::string_view member_text(std::string_view object, std::string_view key);

// Serializes to one line. Invalid UTF-8 in strings is replaced.
[[nodiscard]] std::string to_text(const Json& value);

// A JSON string. Invalid UTF-8 is replaced.
[[nodiscard]] std::string string_text(std::string_view text);
// A JSON number; null if it is not finite.
[[nodiscard]] std::string number_text(double value);

// Writes a JSON object. It takes less code than a tree of values.
class ObjectText {
 public:
  ObjectText& raw(std::string_view name, std::string_view json) {
    append_json_item(string_text(name), &text_);
    text_ += ':';
    text_ += json;
    return *this;
  }
  ObjectText& text(std::string_view name, std::string_view value) {
    return raw(name, string_text(value));
  }
  ObjectText& integer(std::string_view name, int64_t value) {
    return raw(name, std::to_string(value));
  }
  ObjectText& number(std::string_view name, double value) { return raw(name, number_text(value)); }
  ObjectText& flag(std::string_view name, bool value) {
    return raw(name, value ? "true" : "false");
  }
  [[nodiscard]] std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

// A JSON list of what `text_of` writes of each item.
template <class List, class Text>
std::string list_text(const List& list, Text text_of) {
  std::string items;
  for (const auto& each : list) append_json_item(text_of(each), &items);
  return "[" + items + "]";
}

}  // namespace sluice::openai
