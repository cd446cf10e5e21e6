#include "endpoints/endpoints.h"

#include <algorithm>

#include "openai/response.h"

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
};

}  // namespace

const Endpoint* find(std::string_view path) {
  const auto* found = std::find_if(std::begin(kEndpoints), std::end(kEndpoints),
                                   [&](const Endpoint& each) { return each.path == path; });
  return found == std::end(kEndpoints) ? nullptr : found;
}

std::string error_body(std::string_view, const openai::ApiError& error) {
  return openai::error_body(error);
}

}  // namespace sluice::endpoints
