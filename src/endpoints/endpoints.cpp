#include "endpoints/endpoints.h"

#include <algorithm>

#include "anthropic/request.h"
#include "anthropic/responder.h"
#include "ollama/request.h"
#include "ollama/response.h"
#include "openai/llama_completion.h"
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

template <bool kChat>
std::unique_ptr<Responder> respond_ollama(const GenerateRequest& request, TokenBytes token_bytes,
                                          std::string model, const chat::AnswerPlan* plan) {
  return std::make_unique<ollama::Response>(request, std::move(token_bytes), std::move(model), plan,
                                            kChat);
}

constexpr const char* kEvents = "text/event-stream";
constexpr const char* kLines = "application/x-ndjson";
constexpr Endpoint kEndpoints[] = {
    {"/v1/completions", openai::read_completion, respond<openai::ApiResponse>, kEvents},
    {"/v1/chat/completions", openai::read_chat, respond<openai::ApiResponse>, kEvents},
    {"/completion", openai::read_llama_completion, respond<openai::LlamaCompletion>, kEvents},
    {"/infill", openai::read_infill, respond<openai::LlamaCompletion>, kEvents},
    {"/api/chat", ollama::read_chat, respond_ollama<true>, kLines},
    {"/api/generate", ollama::read_generate, respond_ollama<false>, kLines},
    {"/v1/responses", openai::read_responses, respond<openai::ResponsesResponder>, kEvents},
    {"/v1/messages", anthropic::read_message, respond<anthropic::MessageResponder>, kEvents},
};

using openai::EmbeddingRequest;
using openai::Vectors;

constexpr EmbeddingEndpoint kEmbeddingEndpoints[] = {
    {"/v1/embeddings", openai::read_embedding,
     [](const Vectors& vectors, const EmbeddingRequest& request, const std::string& model) {
       return openai::embeddings_body(vectors, model, request.base64);
     }},
    {"/api/embed", ollama::read_embed,
     [](const Vectors& vectors, const EmbeddingRequest&, const std::string& model) {
       return ollama::embed_body(vectors, model);
     }},
    {"/api/embeddings", ollama::read_embeddings,
     [](const Vectors& vectors, const EmbeddingRequest&, const std::string&) {
       return ollama::embeddings_body(vectors);
     }},
};

template <class Table>
const auto* find_in(const Table& table, std::string_view path) {
  const auto* found = std::find_if(std::begin(table), std::end(table),
                                   [&](const auto& each) { return each.path == path; });
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

std::span<const Endpoint> generating() {
  return kEndpoints;
}

const Endpoint* find(std::string_view path) {
  return find_in(kEndpoints, path);
}

std::span<const EmbeddingEndpoint> embedding() {
  return kEmbeddingEndpoints;
}

const EmbeddingEndpoint* find_embedding(std::string_view path) {
  return find_in(kEmbeddingEndpoints, path);
}

const std::vector<std::string_view>& paths() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> out = {"/v1/rerank", "/apply-template", "/tokenize",
                                         "/detokenize", kCountTokens};
    for (const Endpoint& each : kEndpoints) out.push_back(each.path);
    for (const EmbeddingEndpoint& each : kEmbeddingEndpoints) out.push_back(each.path);
    return out;
  }();
  return all;
}

std::string error_body(std::string_view path, const openai::ApiError& error) {
  if (path.starts_with("/api/")) return ollama::error_body(error);
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  return path.starts_with("/messages") ? anthropic::error_body(error) : openai::error_body(error);
}

}  // namespace sluice::endpoints
