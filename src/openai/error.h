// Errors in the format of OpenAI's API. Every error has an HTTP status, one sentence and a code;
// both servers answer with the same document.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"

namespace sluice::openai {

struct ApiError {
  int status = 400;
  std::string message{};
  std::string param{};  // the invalid parameter; "": none, or several
  std::string code = "INVALID_ARGUMENT";
};
using Problem = std::optional<ApiError>;

// Converts an engine error. The status is 400 for invalid requests, 503 for aborted ones, else 500.
[[nodiscard]] ApiError api_error(const Status& status);

// The error of a path where nothing is.
[[nodiscard]] ApiError unknown_path();

// The "type" of errors with an HTTP status, in each API.
struct ErrorTypes {
  const char *openai, *anthropic;
};
[[nodiscard]] ErrorTypes error_types(int status);

// {"error": {"message", "type", "param", "code"}}
[[nodiscard]] std::string error_body(const ApiError& error);

}  // namespace sluice::openai
