// Converts the caller's JSON to values of a render, with its strings marked as content.
#pragma once

#include <string_view>

#include "base/status.h"
#include "chat/interpreter.h"

namespace sluice::chat {

// `mark`: mark strings as content, except those that the template itself contains and role names of
// letters and digits. A template may build control tokens from them, as in '<|' + message.role +
// '|>'. Errors: kInvalidArgument naming `what`, for invalid JSON, nesting beyond 200 levels, or an
// integer outside 64 bits.
[[nodiscard]] Result<Value> read_json(Interpreter& in, const Program& program,
                                      std::string_view json, const char* what, bool mark);

// Converts messages in place to the shape that templates expect: text parts are joined into one
// string, and arguments of tool calls become objects. Errors: kInvalidArgument.
[[nodiscard]] Status normalize_messages(Interpreter& in, const Program& program,
                                        const Value& messages, bool mark);

}  // namespace sluice::chat
