#include "endpoints/endpoints.h"

#include <algorithm>

#include "anthropic/request.h"
#include "anthropic/responder.h"
#include "openai/response.h"
#include "openai/responses.h"

namespace sluice::endpoints {
namespace {

using openai::GenerateRequest;
using openai::Responder;
using openai::TokenBytes;

template <class Response>
std::unique_ptr<Responder> respond(const GenerateRequest& request, TokenBytes token_bytes,
                                   std::string model, const chat::AnswerPlan* plan) {
  return std::make_unique<Response>(request, std::move(token_bytes), std::move(model), plan);
}

constexpr const char* kEvents = "text/event-stream";
constexpr Endpoint kEndpoints[] = {
    {"/v1/completions", openai::read_completion, respond<openai::ApiResponse>, kEvents},
    {"/v1/chat/completions", openai::read_chat, respond<openai::ApiResponse>, kEvents},
    {"/v1/responses", openai::read_responses, respond<openai::ResponsesResponder>, kEvents},
    {"/v1/messages", anthropic::read_message, respond<anthropic::MessageResponder>, kEvents},
};

}  // namespace

const Endpoint* find(std::string_view path) {
  const auto* found = std::find_if(std::begin(kEndpoints), std::end(kEndpoints),
                                   [&](const Endpoint& each) { return each.path == path; });
  return found == std::end(kEndpoints) ? nullptr : found;
}

std::string error_body(std::string_view path, const openai::ApiError& error) {
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  return path.starts_with("/messages") ? anthropic::error_body(error) : openai::error_body(error);
}

}  // namespace sluice::endpoints
