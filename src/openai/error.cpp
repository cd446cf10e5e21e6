// The status and type of each error.
#include "openai/error.h"

#include "openai/json.h"

namespace sluice::openai {
namespace {

constexpr struct {
  int status;
  ErrorTypes types;
} kTypes[] = {
    {401, {"authentication_error", "authentication_error"}},
    {403, {"permission_error", "permission_error"}},
    {404, {"not_found_error", "not_found_error"}},
    {413, {"invalid_request_error", "request_too_large"}},
    {429, {"rate_limit_error", "rate_limit_error"}},
    {503, {"server_error", "overloaded_error"}},
};

}  // namespace

ApiError unknown_path() {
  return {.status = 404, .message = "There is nothing at this path.", .code = "unknown_url"};
}

ErrorTypes error_types(int status) {
  for (const auto& row : kTypes) {
    if (row.status == status) return row.types;
  }
  if (status >= 500) return {"server_error", "api_error"};
  return {"invalid_request_error", "invalid_request_error"};
}

ApiError api_error(const Status& status) {
  ApiError out{.message = status.message(), .code = code_name(status.code())};
  switch (status.code()) {
    case Code::kPromptTooLong:
    case Code::kContextFull:
      out.code = "context_length_exceeded";
      break;
    case Code::kInvalidArgument:
    case Code::kPromptEmpty:
    case Code::kGrammarSyntax:
    case Code::kGrammarLeftRecursion:
    case Code::kGrammarTooLarge:
    case Code::kSchemaUnsupported:
    case Code::kChatTemplate:
    case Code::kNotSupported:
    case Code::kNotInBuild:
    case Code::kMediaMissing:
    case Code::kBudgetTooSmall:  // a picture, or a constraint that has no memory here
      break;
    case Code::kAborted:
      out.status = 503;
      out.code = "unavailable";
      break;
    default:
      out.status = 500;
  }
  return out;
}

std::string error_body(const ApiError& error) {
  const std::string out = ObjectText()
                              .text("message", error.message)
                              .text("type", error_types(error.status).openai)
                              .raw("param", error.param.empty() ? "null" : string_text(error.param))
                              .text("code", error.code)
                              .object();
  return ObjectText().raw("error", out).object();
}

}  // namespace sluice::openai
