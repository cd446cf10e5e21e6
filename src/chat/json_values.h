// JSON of the caller as values of a render, its texts marked as content.
#pragma once

#include <string_view>

#include "base/status.h"
#include "chat/interpreter.h"

namespace sluice::chat {

// `mark`: texts are content, apart from what the template knows by heart: a role of letters and
// digits, and words that the template spells itself, because it may make a control token of them
// ('<|' + message.role + '|>').
// Errors: kInvalidArgument naming `what`, for what is no JSON, nested beyond 200 levels, or has a
// whole number of more than 64 bits.
[[nodiscard]] Result<Value> read_json(Interpreter& in, const Program& program,
                                      std::string_view json, const char* what, bool mark);

// Messages as templates expect them, changed in place: parts of type text become one text, and
// arguments of tool calls objects. Errors: kInvalidArgument.
[[nodiscard]] Status normalize_messages(Interpreter& in, const Program& program,
                                        const Value& messages, bool mark);

}  // namespace sluice::chat
