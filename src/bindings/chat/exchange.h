// A request of chat.wasm and its response (exchange.cpp), and the hooks by which the two binaries
// differ: chat.wasm serves the endpoints that pages call (page_endpoints.cpp), chat-server.wasm all
// that servers have (server_endpoints.cpp).
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/chat/calls.h"
#include "bindings/chat/formats.h"
#include "endpoints/endpoints.h"
#include "openai/json.h"

namespace sluice::bindings {

using openai::ObjectText;
using openai::Token;

struct Exchange {
  // What the caller reads. The status is 0, or that of an error, which `text` then describes:
  // {message, param, code, body}.
  uint32_t status = 0;
  Bytes text;
  // Of a chat: what the template renders.
  Bytes messages, tools, variables;
  uint32_t render_flags = 0;
  // So far.
  uint32_t prompt = 0, cached = 0, completion = 0;
  Bytes finish;
  uint32_t files = 0;  // of an infill: how many could be dropped

  std::string path, model, result, finish_text;
  openai::GenerateRequest request;
  openai::EmbeddingRequest embedding;
  openai::RerankRequest rerank;
  const endpoints::Endpoint* endpoint = nullptr;           // null: it generates nothing
  const endpoints::EmbeddingEndpoint* embedder = nullptr;  // null: it embeds nothing
  std::optional<chat::AnswerPlan> plan;
  std::unique_ptr<openai::Responder> response;
  const generate::Piece* piece = nullptr;  // the one whose tokens have names
  std::vector<std::string> names;          // of piece->top

  void show(std::string next) {
    status = 0;
    result = std::move(next);
    text = bytes_of(result);
  }
  void show(const ObjectText& members) { show(members.object()); }
  void fail(const openai::ApiError& error) {
    show(ObjectText()
             .text("message", error.message)
             .text("param", error.param)
             .text("code", error.code)
             .text("body", endpoints::error_body(path, error)));
    status = static_cast<uint32_t>(error.status);
  }
  void show_frames() {
    const openai::Usage& usage = response->usage();
    prompt = static_cast<uint32_t>(usage.prompt);
    cached = static_cast<uint32_t>(usage.cached);
    completion = static_cast<uint32_t>(usage.completion);
    finish_text = response->finish();
    finish = bytes_of(finish_text);
    show(response->take_frames());
  }
  void respond() {
    const auto name_of = [this](Token token) -> std::string {
      for (size_t i = 0; piece != nullptr && i < piece->top.size(); ++i) {
        if (piece->top[i].token == token) return names[i];
      }
      return {};
    };
    response = endpoint->respond(request, name_of, model, plan ? &*plan : nullptr);
  }
};

// Reads a request that is neither to endpoints::find() nor to find_embedding(), and shows its work.
[[nodiscard]] openai::Problem read_other(Exchange& of, std::string_view body);
// The prompt of an infill, with marks around content.
[[nodiscard]] openai::Problem infill_opening(const Exchange& of, const Formats& formats,
                                             std::string* out);
// The document of a request that read_other() has read.
[[nodiscard]] std::string other_document(Exchange& of, const Bytes* texts, uint32_t n_texts,
                                         uint32_t width, double tokens);

template <class T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> out(bytes.size / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data, out.size() * sizeof(T));
  return out;
}

inline std::string list_of(const std::vector<std::string>& texts) {
  return openai::list_text(texts, openai::string_text);
}

inline std::string list_of(const std::vector<Token>& tokens) {
  return openai::list_text(tokens, [](Token token) { return std::to_string(token); });
}

}  // namespace sluice::bindings
