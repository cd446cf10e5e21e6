#include "openai/part_responder.h"

#include "base/random.h"

namespace sluice::openai {

PartResponder::PartResponder(const GenerateRequest& request, const chat::AnswerPlan* plan)
    : request_(request) {
  if (plan != nullptr) reader_ = plan->reader(random_seed());
}

void PartResponder::start(const generate::Counts& counts) {
  usage_ = {counts.prompt, counts.cached, counts.generated};
  if (!begun_) begin();
  begun_ = true;
}

void PartResponder::change(Part part, bool complete) {
  if (part == part_) return;
  if (part_ != Part::kNone) close(part_, complete);
  part_ = part;
  if (part != Part::kNone) open(part);
}

void PartResponder::say(const chat::AnswerPart& said) {
  if (!said.reasoning.empty()) {
    change(Part::kReasoning, true);
    append(part_, said.reasoning, pieces_);
    if (said.content.empty()) reasoning_tokens_ += static_cast<int64_t>(pieces_.size());
  }
  if (!said.content.empty()) {
    change(Part::kText, true);
    append(part_, said.content, pieces_);
  }
  for (const chat::ToolCall& each : said.calls) {
    change(Part::kNone, true);
    call(each);
  }
  if (!said.reasoning.empty() || !said.content.empty() || !said.calls.empty()) pieces_.clear();
}

void PartResponder::push(int32_t, const generate::Piece& piece, const generate::Counts& counts) {
  start(counts);
  pieces_.push_back(piece);
  say(reader_ ? reader_->push(piece.text, piece.token) : chat::AnswerPart{{}, piece.text, {}});
}

void PartResponder::end(int32_t, generate::Finish finish, const generate::Counts& counts) {
  start(counts);
  if (reader_) say(reader_->finish());
  const bool whole = finish == generate::Finish::kStop;
  change(Part::kNone, whole);
  finish_ = !whole ? "length" : called() ? "tool_calls" : "stop";
  complete(finish);
}

}  // namespace sluice::openai
