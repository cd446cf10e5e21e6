// Writes the response of /v1/responses: one document, or the events of a stream. Nothing is stored,
// so that an id is good for nothing but this response.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "openai/json.h"
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

  void begin_item(const char* id, Json item);
  void end_item(const char* status);
  [[nodiscard]] Json part_of(Part part) const;
  // The members of an event about the open item.
  [[nodiscard]] Json place() const;
  // Streaming: adds an event. `members` is a JSON object.
  void emit_text(const std::string& type, std::string_view members);
  void emit(const std::string& type, const Json& members);
  void emit_response(const char* type);

  const TokenBytes token_bytes_;
  const std::string model_, id_;
  const int64_t created_;
  const char* status_ = "in_progress";
  std::string error_;
  int64_t sequence_ = 0;  // number of the next event
  Json output_ = Json::array();
  // The open item.
  Json item_, logprobs_ = Json::array();
  std::string text_;
};

}  // namespace sluice::openai
