// What clients ask for, in OpenAI's shapes: read from JSON, every value checked, before anything is
// queued. A parameter that OpenAI does not know is refused by name, as its server does; of those
// that mean nothing to a local model, the ones that could not change an answer are ignored (user,
// store, metadata ...), the others refused unless they are switched off (request.cpp lists both).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "embed/embedder.h"
#include "generate/generation.h"
#include "serve/body.h"

namespace sluice::serve {

using session::Token;

inline constexpr int32_t kMaxChoices = 16;      // answers of one request
inline constexpr int32_t kMaxTopLogprobs = 20;  // OpenAI's
inline constexpr size_t kMaxInputs = 2048;      // texts of one request for embeddings; OpenAI's

// An error as OpenAI's server words it.
struct ApiError {
  int status = 400;
  std::string message{};
  std::string param{};  // that is at fault; "": none, or several
  std::string code{};   // "": none
};
using Problem = std::optional<ApiError>;

// Of an error of the engine's: the caller's own faults are 400, the others 500.
[[nodiscard]] ApiError api_error(const Status& status);

// A text, or its tokens.
struct Input {
  std::string text{};
  std::vector<Token> tokens{};  // where there is no text
  bool is_tokens = false;
};

struct GenerateRequest {
  bool chat = false;
  generate::Options options;  // of the first answer; the others' seeds count on from its own
  int32_t n = 1;
  bool stream = false;
  bool include_usage = false;

  std::vector<Input> prompts;  // completions

  std::string messages, variables;  // chat: JSON texts
  bool parse_special_in_content = false;
  bool inline_reasoning = false;  // <think>…</think> stays in the content
};

struct EmbeddingRequest {
  std::vector<Input> inputs;
  embed::Options options;
  bool base64 = false;
};

struct TokenizeRequest {
  std::string text;
  bool add_special = true;    // BOS, and EOS, as the vocabulary has them
  bool parse_special = true;  // control tokens by their texts
};

// Each reads a body into *out; null, or what is wrong with it.
[[nodiscard]] Problem read_completion(std::string_view body, GenerateRequest* out);
[[nodiscard]] Problem read_chat(std::string_view body, GenerateRequest* out);
[[nodiscard]] Problem read_embedding(std::string_view body, EmbeddingRequest* out);
[[nodiscard]] Problem read_tokenize(std::string_view body, TokenizeRequest* out);
[[nodiscard]] Problem read_detokenize(std::string_view body, std::vector<Token>* out);

}  // namespace sluice::serve
