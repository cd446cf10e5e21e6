// Writes the response of /v1/responses: one document, or the events of a stream. Nothing is stored,
// so that an id is good for nothing but this response. Items and events are written as text, which
// takes less code than JSON values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "openai/part_responder.h"

namespace sluice::openai {

class ResponsesResponder final : public PartResponder {
 public:
  // `request` must outlive this.
  ResponsesResponder(const GenerateRequest& request, TokenBytes token_bytes, std::string model,
                     const chat::AnswerPlan* plan);

  [[nodiscard]] std::string document() const override;
  [[nodiscard]] std::string error_frames(const ApiError& error) override;

 private:
  void open(Part part) override;
  void append(Part part, std::string_view text,
              const std::vector<generate::Piece>& pieces) override;
  void close(Part part, bool complete) override;
  void call(const chat::ToolCall& call) override;
  void complete(generate::Finish finish) override;

  // All texts are members of JSON objects, without braces.
  void begin_item(const char* id_prefix, const std::string& members);
  void end_item(const char* status, const std::string& members);
  [[nodiscard]] std::string item_event(const char* status, const std::string& members) const;
  [[nodiscard]] std::string part_of(Part part) const;
  // Streaming: adds an event. Without the prefix "response." of its type.
  void emit(const char* type, const std::string& members);
  // An event about the open item.
  void emit_inside(const char* type, const std::string& members);
  void emit_response(const char* type);
  void emit_event(const std::string& type, const std::string& members);

  const TokenBytes token_bytes_;
  const std::string model_, id_;
  const int64_t created_;
  std::string status_ = "in_progress", error_;
  int64_t sequence_ = 0;  // number of the next event
  std::string output_;    // complete items, with commas between
  size_t n_items_ = 0;
  // The open item.
  std::string item_id_, text_, logprobs_;
};

}  // namespace sluice::openai
