// The JSON of a request's body. Members keep their order, which is the order in which templates
// print them and grammars ask for them. Whatever a body says, its depth, its values and the members
// of its objects meet a cap before they are kept.
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
inline constexpr size_t kMaxMembers = 1100;  // of one object: they are searched one by one

// Errors: kInvalidArgument, one sentence.
[[nodiscard]] Result<Json> parse_body(std::string_view text);

// On one line, in valid UTF-8 whatever the strings hold.
[[nodiscard]] std::string to_text(const Json& value);

}  // namespace sluice::serve
