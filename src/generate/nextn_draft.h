// A head of the model's own that predicts further tokens (session/nextn.h) as a source of guesses:
// it is asked as a smaller model is, while that promises to pay. Natively alone.
#pragma once

#include "generate/model_drafts.h"
#include "session/nextn.h"

namespace sluice::generate {

class NextnDraft final : public ModelDrafts {
 public:
  // Of an engine that was opened for it, which outlives this.
  explicit NextnDraft(session::Engine& engine) : head_(*engine.nextn()) {}
  ~NextnDraft() override { head_.end(this); }
  NextnDraft(const NextnDraft&) = delete;
  NextnDraft& operator=(const NextnDraft&) = delete;

  void start(session::Session& target, size_t most) override;
  void end() override;
  [[nodiscard]] bool begin(std::span<const Token> upcoming, const draft::Setting& setting,
                           size_t most, int32_t said, double rate) override;
  [[nodiscard]] Status failure() const override { return head_.failure(); }

 private:
  void weigh(int32_t missing);
  [[nodiscard]] Step compute(int32_t max_ops) override { return head_.step(max_ops); }
  [[nodiscard]] std::span<const float> logits() const override { return head_.logits(); }
  [[nodiscard]] bool go_on(Token token) override { return head_.go_on(token); }
  void abandon() override { head_.cancel(); }

  session::NextnHead& head_;
};

}  // namespace sluice::generate
