// The endpoints of every API that clients speak: which generate text, how each reads a request and
// writes its response, and which form its errors have. Without I/O and without an engine, so that
// all servers share them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "openai/request.h"
#include "openai/responder.h"
#include "openai/response.h"

namespace sluice::endpoints {

// An endpoint that generates text.
struct Endpoint {
  std::string_view path;
  // Reads a request body into *out, whose options have defaults. Returns an error, or nothing.
  openai::Problem (*read)(std::string_view body, openai::GenerateRequest* out);
  // `request` must outlive the result. `model`: its name. `plan`: how to read a chat's response;
  // null if the request is not a chat.
  std::unique_ptr<openai::Responder> (*respond)(const openai::GenerateRequest& request,
                                                openai::TokenBytes token_bytes, std::string model,
                                                const chat::AnswerPlan* plan);
  const char* stream_type;  // the MIME type of a streamed response
};

// An endpoint that embeds texts.
struct EmbeddingEndpoint {
  std::string_view path;
  // Reads a request body into *out. Returns an error, or nothing.
  openai::Problem (*read)(std::string_view body, openai::EmbeddingRequest* out);
  // The response. `model`: its name.
  std::string (*write)(const openai::Vectors& vectors, const openai::EmbeddingRequest& request,
                       const std::string& model);
};

// All of them.
[[nodiscard]] std::span<const Endpoint> generating();
[[nodiscard]] std::span<const EmbeddingEndpoint> embedding();

// Tokens of the prompt of a message.
inline constexpr std::string_view kCountTokens = "/v1/messages/count_tokens";
// The paths of all POST requests that do not depend on the server: of these two, and of those that
// compute something else.
[[nodiscard]] const std::vector<std::string_view>& paths();

// Returns the endpoint of a path, or null if none embeds texts there.
[[nodiscard]] const EmbeddingEndpoint* find_embedding(std::string_view path);

// Returns the endpoint of a path, or null if none generates text there.
[[nodiscard]] const Endpoint* find(std::string_view path);

// The JSON document of an error in the form of the path's API. The path may be unknown.
[[nodiscard]] std::string error_body(std::string_view path, const openai::ApiError& error);

}  // namespace sluice::endpoints
