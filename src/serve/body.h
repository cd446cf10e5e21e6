// Parses the JSON body of a request. Members keep their order, because templates print them and
// grammars generate them in that order. Depth, number of values and members per object are limited
// during parsing.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice::serve {

using Json = nlohmann::ordered_json;

inline constexpr size_t kMaxDepth = 64;
inline constexpr size_t kMaxValues = 1u << 18;
inline constexpr size_t kMaxMembers = 1100;  // of one object: member search is linear

// Errors: kInvalidArgument.
[[nodiscard]] Result<Json> parse_body(std::string_view text);

// Serializes to one line. Invalid UTF-8 in strings is replaced.
[[nodiscard]] std::string to_text(const Json& value);

}  // namespace sluice::serve
