// Checks the requests of the OpenAI-compatible API: each field's type and range. Without I/O and
// without an engine, so that every server and the page share one check. An unknown field is an
// error that names it, as with OpenAI. Fields without meaning for a local model are ignored if they
// cannot change the output (user, store, metadata ...). Otherwise they are errors unless they are
// switched off. request.cpp has the fields of each request, one a line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "embed/embedder.h"
#include "generate/generation.h"
#include "openai/error.h"

namespace sluice::openai {

using session::Token;

inline constexpr int32_t kMaxChoices = 16;      // outputs of one request
inline constexpr int32_t kMaxTopLogprobs = 20;  // as in OpenAI's API
inline constexpr size_t kMaxInputs = 2048;  // texts of one embeddings request, as in OpenAI's API
inline constexpr size_t kMaxTools = 512;

// A text, or a list of tokens.
struct Input {
  std::string text{};
  std::vector<Token> tokens{};  // used instead of the text if is_tokens
  bool is_tokens = false;
};

// Which tools the model may or must call.
struct ToolChoice {
  enum class Mode : uint8_t { kAuto, kNone, kRequired };
  Mode mode = Mode::kAuto;
  std::vector<std::string> names{};  // only these functions; empty: all
};

// A gap to fill between two texts.
struct Infill {
  struct File {
    std::string name, text;
  };
  std::vector<File> files{};  // further ones, as context
  std::string prefix{}, suffix{};
  std::string prompt{};  // how the text in the gap begins
};

// Chat, completion or infill. A request that is none of them only checks that the server is ready.
struct GenerateRequest {
  bool chat = false;
  generate::Options options;  // of the first output; each further output adds 1 to the seed
  int32_t n = 1;
  bool stream = false;
  bool include_usage = false;
  bool timings_per_token = false;
  std::string cache_key;  // prompt_cache_key: requests with one key share a sequence
  size_t n_stop = 0;      // of options.stop, the first ones are the client's
  // Members of the response that repeat the request, as JSON text; each ends with a comma.
  std::string echo;

  std::vector<Input> prompts;    // of completions
  std::optional<Infill> infill;  // in place of prompts

  // Of chats, in the form of /v1/chat/completions. JSON texts are as the client sent them; "":
  // absent.
  std::string messages, tools;
  std::string variables;  // of the template: chat_template_kwargs and reasoning_effort
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the output continues the last message
  bool parse_special_in_content = false;
  bool pictures = false;          // set by who has read the request: the model takes pictures
  bool inline_reasoning = false;  // leave reasoning in the content

  bool return_tokens = false;  // of llama-server's /completion: also the ids of the output

  [[nodiscard]] size_t prompt_count() const { return chat || infill ? 1 : prompts.size(); }
};

struct EmbeddingRequest {
  std::vector<Input> inputs;
  embed::Options options;
  bool base64 = false;
  int32_t truncate =
      0;  // most tokens of an input, the rest is cut off; 0: an error; -1: the context
};

struct RerankRequest {
  std::string query;
  std::vector<std::string> documents;
  int32_t top_n = INT32_MAX;
  bool return_documents = false;
  bool tei = false;  // the fields and the answer of text-embeddings-inference: `texts`
};

struct TokenizeRequest {
  std::string text;
  bool add_special = true;    // add BOS and EOS where the vocabulary wants them
  bool parse_special = true;  // parse control tokens such as <|im_end|>
  bool with_pieces = false;   // also each token's text
};

// Each reads a request body into *out. Returns an error, or nothing.
[[nodiscard]] Problem read_completion(std::string_view body, GenerateRequest* out);
[[nodiscard]] Problem read_chat(std::string_view body, GenerateRequest* out);
[[nodiscard]] Problem read_responses(std::string_view body, GenerateRequest* out);
// The fields of a chat request that make its prompt.
[[nodiscard]] Problem read_apply_template(std::string_view body, GenerateRequest* out);
[[nodiscard]] Problem read_embedding(std::string_view body, EmbeddingRequest* out);
[[nodiscard]] Problem read_rerank(std::string_view body, RerankRequest* out);
[[nodiscard]] Problem read_tokenize(std::string_view body, TokenizeRequest* out);
[[nodiscard]] Problem read_detokenize(std::string_view body, std::vector<Token>* out);

// Checks what depends on the model's vocabulary: the tokens of the options.
[[nodiscard]] Problem check_tokens(const GenerateRequest& request, int64_t n_vocab);

}  // namespace sluice::openai
