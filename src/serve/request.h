// Reads the JSON requests of the OpenAI-compatible API. Every value is checked before a request is
// queued. An unknown parameter is an error that names it, as with OpenAI. Parameters without
// meaning for a local model are ignored if they cannot change the output (user, store, metadata
// ...). Otherwise they are errors unless they are switched off. request.cpp lists both.
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

inline constexpr int32_t kMaxChoices = 16;      // outputs of one request
inline constexpr int32_t kMaxTopLogprobs = 20;  // as in OpenAI's API
inline constexpr size_t kMaxInputs = 2048;  // texts of one embeddings request, as in OpenAI's API

// An error in the format of OpenAI's API.
struct ApiError {
  int status = 400;
  std::string message{};
  std::string param{};  // the invalid parameter; "": none, or several
  std::string code{};   // "": none
};
using Problem = std::optional<ApiError>;

// Converts an engine error. The status is 400 for invalid requests, 503 for aborted ones, else 500.
[[nodiscard]] ApiError api_error(const Status& status);

// A text, or a list of tokens.
struct Input {
  std::string text{};
  std::vector<Token> tokens{};  // used instead of the text if is_tokens
  bool is_tokens = false;
};

struct GenerateRequest {
  bool chat = false;
  generate::Options options;  // of the first output; each further output adds 1 to the seed
  int32_t n = 1;
  bool stream = false;
  bool include_usage = false;

  std::vector<Input> prompts;  // of /v1/completions

  std::string messages, variables;  // of /v1/chat/completions, as JSON
  bool parse_special_in_content = false;
  bool inline_reasoning = false;  // leave <think>…</think> in the content
};

struct EmbeddingRequest {
  std::vector<Input> inputs;
  embed::Options options;
  bool base64 = false;
};

struct TokenizeRequest {
  std::string text;
  bool add_special = true;    // add BOS and EOS where the vocabulary wants them
  bool parse_special = true;  // parse control tokens such as <|im_end|>
};

// Each reads a request body into *out. Returns an error, or nothing.
[[nodiscard]] Problem read_completion(std::string_view body, GenerateRequest* out);
[[nodiscard]] Problem read_chat(std::string_view body, GenerateRequest* out);
[[nodiscard]] Problem read_embedding(std::string_view body, EmbeddingRequest* out);
[[nodiscard]] Problem read_tokenize(std::string_view body, TokenizeRequest* out);
[[nodiscard]] Problem read_detokenize(std::string_view body, std::vector<Token>* out);

}  // namespace sluice::serve
