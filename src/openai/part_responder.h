// The responses that are lists of parts: reasoning, text and tool calls, in the order in which the
// model wrote them. Reads a chat's output and tells its API what begins, grows and ends; the API
// writes it down. There is one output.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "openai/request.h"
#include "openai/responder.h"

namespace sluice::openai {

class PartResponder : public Responder {
 public:
  void push(int32_t index, const generate::Piece& piece, const generate::Counts& counts) final;
  void end(int32_t index, generate::Finish finish, const generate::Counts& counts) final;
  [[nodiscard]] std::string last_frames() final { return {}; }

 protected:
  enum class Part : uint8_t { kNone, kReasoning, kText };

  // `request` must outlive this. `plan`: how to read the output; null: all of it is text.
  PartResponder(const GenerateRequest& request, const chat::AnswerPlan* plan);

  // Before all parts, with the prompt's usage.
  virtual void begin() {}
  virtual void open(Part part) = 0;
  // Adds to the part that is open. `pieces`: its tokens, as far as one can tell.
  virtual void append(Part part, std::string_view text,
                      const std::vector<generate::Piece>& pieces) = 0;
  virtual void close(Part part, bool complete) = 0;
  virtual void call(const chat::ToolCall& call) = 0;
  // After all parts.
  virtual void complete(generate::Finish finish) = 0;

  [[nodiscard]] bool called() const { return reader_ && reader_->calls() > 0; }

  const GenerateRequest& request_;
  int64_t reasoning_tokens_ = 0;

 private:
  void start(const generate::Counts& counts);
  void change(Part part, bool complete);
  void say(const chat::AnswerPart& part);

  std::optional<chat::AnswerReader> reader_;
  std::vector<generate::Piece> pieces_;  // whose text has not come out yet
  Part part_ = Part::kNone;              // the open one
  bool begun_ = false;
};

}  // namespace sluice::openai
