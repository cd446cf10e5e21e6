// Speculative decoding with a smaller draft model of the same vocabulary. It generates draft tokens
// on its own sequence for as long as they are expected to speed up decoding.
#pragma once

#include "generate/model_drafts.h"

namespace sluice::generate {

class DraftModel final : public ModelDrafts {
 public:
  // The session must outlive this and be used by nothing else. Its engine is not the target's.
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
  std::vector<Token> text_;  // the target's tokens, or only the first and last of them
  size_t skipped_ = 0;       // tokens omitted between those
  bool given_up_ = false;
};

}  // namespace sluice::generate
