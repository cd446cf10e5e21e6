// A smaller model with the same vocabulary as a source of guesses: it writes what it would say next
// on a sequence of its own, for as long as that promises to pay.
#pragma once

#include "generate/model_drafts.h"

namespace sluice::generate {

class DraftModel final : public ModelDrafts {
 public:
  // The session outlives this and does nothing else; its engine is not the target's.
  explicit DraftModel(session::Session& session) : session_(session) {}

  void start(session::Session& target, size_t most) override;
  void end() override;
  [[nodiscard]] bool begin(std::span<const Token> upcoming, const draft::Setting& setting,
                           size_t most, int32_t said, double rate) override;
  [[nodiscard]] Status failure() const override { return session_.failure(); }

 private:
  [[nodiscard]] size_t take_text(std::span<const Token> upcoming);
  void weigh(std::span<const Token> upcoming);
  [[nodiscard]] Step compute(int32_t max_ops) override { return session_.step(max_ops); }
  [[nodiscard]] std::span<const float> logits() const override { return session_.logits(); }
  [[nodiscard]] bool go_on(Token token) override { return session_.begin({&token, 1}).ok(); }
  void abandon() override { session_.cancel(); }

  session::Session& session_;
  std::vector<Token> text_;  // the target's, or its beginning and end
  size_t skipped_ = 0;       // tokens between them
  bool given_up_ = false;
};

}  // namespace sluice::generate
