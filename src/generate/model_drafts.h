// What sources that compute their guesses share, one after another: each is the likeliest token
// that a pass gives, as long as another one promises to pay.
#pragma once

#include "generate/drafter.h"

namespace sluice::generate {

class ModelDrafts : public ModelDraftSource {
 public:
  [[nodiscard]] Step step(int32_t max_ops) final;
  [[nodiscard]] std::span<const Token> draft_tokens() const final { return {tokens_.data(), n_}; }
  [[nodiscard]] size_t checked() const final { return checked_; }
  void judge(size_t i, bool right) final { known_.trust.note(level_[i], right); }
  void cancel() final;

 protected:
  // A text of the target begins with what is known of guesses so far.
  void start_with(session::Session& target, const draft::DraftState& known, size_t most);
  void forget() { n_ = checked_ = 0; }
  // Whether guesses at what setting_ says of their cost promise more than `rate`.
  [[nodiscard]] bool pays(int32_t said, double rate);

  // --- the pass under way: its steps, what it gives, and the next one, of a guess
  [[nodiscard]] virtual Step compute(int32_t max_ops) = 0;
  [[nodiscard]] virtual std::span<const float> logits() const = 0;
  [[nodiscard]] virtual bool go_on(Token token) = 0;
  virtual void abandon() = 0;

  session::Session* target_ = nullptr;  // null: it guesses for no text
  draft::DraftState known_;
  draft::Setting setting_;
  size_t max_ = 0;
  bool computing_ = false;
  double taking_ms_ = 0;  // running: to read a guess from the logits

 private:
  void take_draft();
  [[nodiscard]] size_t wanted(size_t n) const;

  std::vector<Token> tokens_;
  std::vector<int32_t> level_;
  std::vector<double> chance_;
  size_t n_ = 0, checked_ = 0;
};

}  // namespace sluice::generate
