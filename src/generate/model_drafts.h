// The common part of sources that compute draft tokens one after another. Each draft token is the
// likeliest token of a forward pass. Drafting continues while one more token is expected to speed
// up decoding.
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
  // Begins a generation on `target`, starting from the statistics in `known`.
  void start_with(session::Session& target, const draft::DraftState& known, size_t most);
  void forget() { n_ = checked_ = 0; }
  // Whether drafting at the costs in setting_ is expected to exceed `rate` tokens per millisecond.
  [[nodiscard]] bool pays(int32_t said, double rate);

  // --- the pass under way: run it, its logits, begin the next one with a draft token, cancel
  [[nodiscard]] virtual Step compute(int32_t max_ops) = 0;
  [[nodiscard]] virtual std::span<const float> logits() const = 0;
  [[nodiscard]] virtual bool go_on(Token token) = 0;
  virtual void abandon() = 0;

  session::Session* target_ = nullptr;  // null: no generation is under way
  draft::DraftState known_;
  draft::Setting setting_;
  size_t max_ = 0;
  bool computing_ = false;
  double taking_ms_ = 0;  // running average: time to pick a draft token from the logits

 private:
  void take_draft();
  [[nodiscard]] size_t wanted(size_t n) const;

  std::vector<Token> tokens_;
  std::vector<int32_t> level_;
  std::vector<double> chance_;
  size_t n_ = 0, checked_ = 0;
};

}  // namespace sluice::generate
