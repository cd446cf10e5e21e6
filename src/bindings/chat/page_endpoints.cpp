// The endpoints of chat.wasm: those that the classes of the package call. chat-server.wasm has
// those of servers, too (endpoints/endpoints.cpp, server_endpoints.cpp), which pages need not load.
#include "bindings/chat/exchange.h"
#include "openai/response.h"

namespace sluice {
namespace {

std::unique_ptr<openai::Responder> respond(const openai::GenerateRequest& request,
                                           openai::TokenBytes token_bytes, std::string model,
                                           const chat::AnswerPlan* plan) {
  return std::make_unique<openai::ApiResponse>(request, std::move(token_bytes), std::move(model),
                                               plan);
}

constexpr const char* kEvents = "text/event-stream";
constexpr endpoints::Endpoint kEndpoints[] = {
    {"/v1/completions", openai::read_completion, respond, kEvents},
    {"/v1/chat/completions", openai::read_chat, respond, kEvents},
};
constexpr endpoints::EmbeddingEndpoint kEmbeddings = {
    "/v1/embeddings", openai::read_embedding,
    [](const openai::Vectors& vectors, const openai::EmbeddingRequest& request,
       const std::string& model) {
      return openai::embeddings_body(vectors, model, request.base64);
    }};

}  // namespace

const endpoints::Endpoint* endpoints::find(std::string_view path) {
  for (const Endpoint& each : kEndpoints) {
    if (each.path == path) return &each;
  }
  return nullptr;
}

const endpoints::EmbeddingEndpoint* endpoints::find_embedding(std::string_view path) {
  return path == kEmbeddings.path ? &kEmbeddings : nullptr;
}

std::string endpoints::error_body(std::string_view, const openai::ApiError& error) {
  return openai::error_body(error);
}

openai::Problem bindings::read_other(Exchange&, std::string_view) {
  return openai::unknown_path();
}

openai::Problem bindings::infill_opening(const Exchange&, const Formats&, std::string*) {
  return openai::unknown_path();
}

std::string bindings::other_document(Exchange&, const Bytes*, uint32_t, uint32_t, double) {
  return {};
}

}  // namespace sluice
