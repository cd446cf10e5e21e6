// Writes the responses of the OpenAI-compatible API. The tokens of a generation become one JSON
// document, or the chunks of a stream of server-sent events. Without I/O, and without a tokenizer:
// whoever calls it says which bytes a token has.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "openai/json.h"
#include "openai/request.h"
#include "openai/responder.h"

namespace sluice::openai {

// `pictures`: the model takes them.
[[nodiscard]] std::string models_body(const std::string& model, int64_t created, bool pictures);
[[nodiscard]] std::string model_body(const std::string& model, int64_t created, bool pictures);

// What an embeddings or rerank request has computed.
struct Vectors {
  std::span<const float> values;  // [inputs][width]
  size_t width = 0;
  int64_t tokens = 0;  // of all inputs
};
[[nodiscard]] std::string embeddings_body(const Vectors& vectors, const std::string& model,
                                          bool base64);
// The best documents first. The score of a document is the first of its `width` values.
[[nodiscard]] std::string rerank_body(const Vectors& vectors, const RerankRequest& request,
                                      const std::string& model);
// `bytes`: null without pieces.
[[nodiscard]] std::string tokenize_body(std::span<const Token> tokens, const TokenBytes& bytes);

// Counts and times of an output, in llama-server's format.
[[nodiscard]] Json timings_json(const generate::Counts& counts);
// Appends the shortest text that is read as the same float: half of what a double would take. JSON
// has no infinity: it is null.
void append_number(float value, std::string* out);
// A log-probability for JSON, which has no infinity.
[[nodiscard]] double finite_logprob(float logprob);
// The bytes of a token as text for JSON: invalid UTF-8, such as a part of a character, is replaced.
[[nodiscard]] std::string valid_text(std::string_view bytes);
// The bytes of a token as a JSON array of numbers.
[[nodiscard]] std::string byte_list(std::string_view bytes);
// The arguments of a call on one line; nullopt if they are not a JSON object.
[[nodiscard]] std::optional<std::string> arguments_object(const chat::ToolCall& call);
// A server-sent event with this data.
[[nodiscard]] std::string frame_of(std::string_view data);

// The log-probability of a token and of the likeliest ones, in the format of chats.
[[nodiscard]] Json logprob_json(const generate::Piece& piece, const TokenBytes& bytes);

// A random id: a prefix such as "msg_", and 24 hexadecimal digits.
[[nodiscard]] std::string new_id(const char* prefix);

// The response of a chat or of completions.
class ApiResponse final : public Responder {
 public:
  // `request` must outlive this. `plan`: how to read a chat's responses; null for completions.
  ApiResponse(const GenerateRequest& request, TokenBytes token_bytes, std::string model,
              const chat::AnswerPlan* plan);

  void push(int32_t index, const generate::Piece& piece, const generate::Counts& counts) override;
  void end(int32_t index, generate::Finish finish, const generate::Counts& counts) override;
  [[nodiscard]] std::string document() const override;
  [[nodiscard]] std::string last_frames() override;
  [[nodiscard]] std::string error_frames(const ApiError& error) override;

 private:
  struct Choice {
    std::optional<chat::AnswerReader> reader;
    std::string content, thought;
    Json calls = Json::array();     // tool calls
    size_t n_calls = 0;             // streamed so far
    Json logprobs = Json::array();  // one entry per token
    size_t points = 0;              // code points of the text before the next token
    std::string finish;
  };
  void say(int32_t index, const chat::AnswerPart& text, const Json& logprobs,
           const generate::Counts* timings);
  void frame(int32_t index, Json delta, const Json& logprobs, const char* finish,
             const generate::Counts* timings);
  [[nodiscard]] Json head(bool chunk) const;
  [[nodiscard]] Json probs_of(const generate::Piece& piece) const;
  [[nodiscard]] Json logprobs_of(Choice& choice, const generate::Piece& piece) const;

  const GenerateRequest& request_;
  const TokenBytes token_bytes_;
  const std::string model_, id_;
  const int64_t created_;
  std::vector<Choice> choices_;
  generate::Counts total_;  // of all outputs, for the timings
};

}  // namespace sluice::openai
