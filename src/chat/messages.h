// Converts messages to the shape that chat templates expect.
#pragma once

#include "base/status.h"
#include "jinja/interpreter.h"

namespace sluice::chat {

// Converts messages in place: text parts are joined into one string, and arguments of tool calls
// become objects. `mark`: as for jinja::read_json(). Errors: kInvalidArgument.
[[nodiscard]] Status normalize_messages(jinja::Interpreter& in, const jinja::Program& program,
                                        const jinja::Value& messages, bool mark);

}  // namespace sluice::chat
