// Converts the caller's JSON to values of a render, with its strings marked as the caller's. This
// reader keeps what a general library loses: the digits of numbers beyond 64 bits, and text with
// half a surrogate pair, which JSON.stringify writes.
#pragma once

#include <string_view>

#include "base/status.h"
#include "jinja/interpreter.h"

namespace sluice::jinja {

// `mark`: strings are tokenized without control tokens, except those that the template itself
// contains and role names of letters and digits. A template may build control tokens from them, as
// in '<|' + message.role + '|>'. Half a surrogate pair becomes U+FFFD. Errors: kInvalidArgument
// naming `what`, for text that is not JSON or nesting beyond 200 levels.
[[nodiscard]] Result<Value> read_json(Interpreter& in, const Program& program,
                                      std::string_view json, const char* what, bool mark);

}  // namespace sluice::jinja
