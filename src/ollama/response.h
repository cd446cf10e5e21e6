// Writes the responses of Ollama's API: one JSON document, or a stream of JSON documents, one a
// line. The last one has the counts and times, in nanoseconds. Without I/O.
#pragma once

#include <optional>
#include <string>

#include "chat/answer.h"
#include "openai/responder.h"
#include "openai/response.h"

namespace sluice::ollama {

class Response final : public openai::Responder {
 public:
  // `request` must outlive this. `plan`: how to read a chat's responses. `chat`: the response has a
  // message, or else a text.
  Response(const openai::GenerateRequest& request, openai::TokenBytes token_bytes,
           std::string model, const chat::AnswerPlan* plan, bool chat);

  void push(int32_t index, const generate::Piece& piece, const generate::Counts& counts) override;
  void end(int32_t index, generate::Finish finish, const generate::Counts& counts) override;
  [[nodiscard]] std::string document() const override { return line(said_, /*last=*/true); }
  [[nodiscard]] std::string last_frames() override;
  [[nodiscard]] std::string error_frames(const openai::ApiError& error) override;

 private:
  struct Said {
    std::string text, thinking;
    std::string calls, logprobs;  // items of JSON lists
    [[nodiscard]] bool empty() const {
      return text.empty() && thinking.empty() && calls.empty() && logprobs.empty();
    }
  };
  void add(const chat::AnswerPart& part);
  void say();
  [[nodiscard]] std::string line(const Said& said, bool last) const;
  [[nodiscard]] std::string logprob(const generate::Piece& piece) const;

  const openai::GenerateRequest& request_;
  const openai::TokenBytes token_bytes_;
  const std::string model_;
  const bool chat_;
  std::optional<chat::AnswerReader> reader_;
  Said said_;  // all of it, or since the last frame
  std::optional<generate::Counts> counts_;
};

// {"error": "…"}
[[nodiscard]] std::string error_body(const openai::ApiError& error);

// Of /api/embed, and of the older /api/embeddings.
[[nodiscard]] std::string embed_body(const openai::Vectors& vectors, const std::string& model);
[[nodiscard]] std::string embeddings_body(const openai::Vectors& vectors);

// A time in UTC, such as "2025-01-31T12:00:00Z".
[[nodiscard]] std::string time_text(int64_t seconds);

}  // namespace sluice::ollama
