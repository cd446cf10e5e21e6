// Writes the responses of the OpenAI-compatible API. The events of a job become one JSON document,
// or the chunks of a stream of server-sent events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "serve/job.h"
#include "serve/request.h"
#include "tokenizer/tokenizer.h"

namespace sluice::serve {

struct Usage {
  int64_t prompt = 0, cached = 0, completion = 0;
};

// {"error": {...}}
[[nodiscard]] std::string error_body(const ApiError& error);
[[nodiscard]] std::string models_body(const std::string& model, int64_t created);
[[nodiscard]] std::string model_body(const std::string& model, int64_t created);
[[nodiscard]] std::string embeddings_body(const Job& job, const std::string& model, bool base64);
// A random id: a prefix and 24 hexadecimal digits.
[[nodiscard]] std::string new_id(const char* prefix);

// The last frame of a stream, and the frame for an error.
inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";
[[nodiscard]] std::string error_frame(const ApiError& error);

class ApiResponse {
 public:
  // `request` and `tokenizer` must outlive this. `plan`: how to read a chat's responses; null for
  // completions.
  ApiResponse(const GenerateRequest& request, const tokenizer::Tokenizer& tokenizer,
              std::string model, const chat::AnswerPlan* plan);

  // Adds an event of kind kPiece or kAnswered.
  void push(const Event& event);
  // Streaming: returns the frames since the last call. The first ones exist before any event.
  [[nodiscard]] std::string take_frames();
  // Streaming, after all events: the frame with the usage if it was requested, else "".
  [[nodiscard]] std::string usage_frame() const;
  // Not streaming, after all events: the complete response.
  [[nodiscard]] std::string document() const;
  [[nodiscard]] const Usage& usage() const { return usage_; }
  // The finish reason of the last choice.
  [[nodiscard]] const char* finish() const { return finish_; }

 private:
  struct Choice {
    std::optional<chat::AnswerReader> reader;
    std::string content, thought;
    Json logprobs = Json::array();  // one entry per token
    size_t points = 0;              // code points of the text before the next token
    std::string finish;
  };
  void say(int32_t index, const chat::AnswerPart& text, const Json& logprobs);
  void frame(int32_t index, Json delta, const Json& logprobs, const char* finish);
  [[nodiscard]] Json head(bool chunk) const;
  [[nodiscard]] Json probs_of(const generate::Piece& piece) const;
  [[nodiscard]] Json logprobs_of(Choice& choice, const generate::Piece& piece) const;

  const GenerateRequest& request_;
  const tokenizer::Tokenizer& tokenizer_;
  const std::string model_, id_;
  const int64_t created_;
  std::vector<Choice> choices_;
  std::string frames_;
  Usage usage_;
  const char* finish_ = "";
};

}  // namespace sluice::serve
