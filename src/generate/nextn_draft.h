// Speculative decoding with the model's multi-token prediction (MTP) head (session/nextn.h). It
// drafts like a draft model, while that is expected to speed up decoding. Native builds only.
#pragma once

#include "generate/model_drafts.h"
#include "session/nextn.h"

namespace sluice::generate {

class NextnDraft final : public ModelDrafts {
 public:
  // The head must outlive this.
  explicit NextnDraft(session::NextnHead& head) : head_(head) {}
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
