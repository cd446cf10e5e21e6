// Writes the responses and errors of Anthropic's Messages API.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "openai/part_responder.h"

namespace sluice::anthropic {

// {"type": "error", "error": {"type", "message"}}
[[nodiscard]] std::string error_body(const openai::ApiError& error);

[[nodiscard]] std::string count_body(size_t n_tokens);

// The response of /v1/messages: one document, or the events of a stream.
class MessageResponder final : public openai::PartResponder {
 public:
  // `request` must outlive this.
  MessageResponder(const openai::GenerateRequest& request, openai::TokenBytes token_bytes,
                   std::string model, const chat::AnswerPlan* plan);

  [[nodiscard]] std::string document() const override;
  [[nodiscard]] std::string error_frames(const openai::ApiError& error) override;

 private:
  void begin() override;
  void open(Part part) override;
  void append(Part part, std::string_view text,
              const std::vector<generate::Piece>& pieces) override;
  void close(Part part, bool complete) override;
  void call(const chat::ToolCall& call) override;
  void complete(generate::Finish finish) override;

  // Streaming: adds an event. `members` is the text of a JSON object's members.
  void emit(const std::string& type, const std::string& members = {});
  void emit_delta(const char* type, const char* key, std::string_view text);
  void begin_block(const std::string& block);
  void end_block(const std::string& block);
  [[nodiscard]] std::string usage_json() const;
  [[nodiscard]] std::string stop_json() const;

  const std::string model_, id_;
  std::string content_;  // complete blocks, as JSON text with commas between
  std::string text_;     // of the open block
  size_t n_blocks_ = 0;
  std::string stop_reason_;  // "": not known yet
};

}  // namespace sluice::anthropic
