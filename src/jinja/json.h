// Converts the caller's JSON to values of a render, with its strings marked as content.
#pragma once

#include <string_view>

#include "base/status.h"
#include "jinja/interpreter.h"

namespace sluice::jinja {

// `mark`: mark strings as content, except those that the template itself contains and role names of
// letters and digits. A template may build control tokens from them, as in '<|' + message.role +
// '|>'. Errors: kInvalidArgument naming `what`, for invalid JSON, nesting beyond 200 levels, or an
// integer outside 64 bits.
[[nodiscard]] Result<Value> read_json(Interpreter& in, const Program& program,
                                      std::string_view json, const char* what, bool mark);

}  // namespace sluice::jinja
