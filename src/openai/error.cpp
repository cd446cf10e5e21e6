// The status and type of each error.
#include "openai/error.h"

#include "openai/json.h"

namespace sluice::openai {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

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
                              .text("type", type_of(error.status))
                              .raw("param", error.param.empty() ? "null" : string_text(error.param))
                              .text("code", error.code)
                              .object();
  return ObjectText().raw("error", out).object();
}

}  // namespace sluice::openai
