// A smaller model with the same vocabulary as a source of guesses: it writes what it would say next
// on a timeline of its own, for as long as that promises to pay.
#pragma once

#include "generate/drafter.h"

namespace sluice::generate {

class DraftModel final : public GuessingModel {
 public:
  // The session outlives this and does nothing else; its engine is not the target's.
  explicit DraftModel(session::Session& session) : session_(session) {}

  void start(session::Session& target, size_t most) override;
  void end() override;
  [[nodiscard]] bool begin(std::span<const Token> upcoming, const draft::Setting& setting,
                           size_t most, int32_t said, double rate) override;
  [[nodiscard]] Step step(int32_t max_ops) override;
  [[nodiscard]] std::span<const Token> guess() const override { return {guess_.data(), n_}; }
  [[nodiscard]] size_t checked() const override { return checked_; }
  void judge(size_t i, bool right) override { known_.trust.note(level_[i], right); }
  [[nodiscard]] Status failure() const override { return session_.failure(); }
  void cancel() override;

 private:
  [[nodiscard]] size_t take_text(std::span<const Token> upcoming);
  void weigh(std::span<const Token> upcoming);
  void take_guess();
  [[nodiscard]] size_t wanted(size_t n) const;

  session::Session& session_;
  session::Session* target_ = nullptr;
  draft::Experience known_;
  std::vector<Token> text_;  // the target's, or its beginning and end
  size_t skipped_ = 0;       // tokens between them
  std::vector<Token> guess_;
  std::vector<int32_t> level_;
  std::vector<double> chance_;
  size_t n_ = 0, checked_ = 0, most_ = 0;
  draft::Setting setting_;
  bool computing_ = false, given_up_ = false;
  double taking_ms_ = 0;  // running: to read a guess from the logits
};

}  // namespace sluice::generate
