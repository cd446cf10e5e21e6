// Parses the JSON body of a request. Depth, number of values and members per object are limited
// during parsing. What only passes through (messages, tools, schemas) is handed on as the text that
// the client sent: a number that is parsed and printed again can become another one.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

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

}  // namespace sluice::openai
