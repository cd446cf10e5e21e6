// Speculative decoding: where draft tokens come from, and how many of them a forward pass checks.
// Draft tokens never change the output. Each token is sampled from the model's own logits, and a
// draft token that differs is discarded with everything computed after it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/ngram.h"
#include "draft/policy.h"
#include "session/session.h"

namespace sluice::generate {

using session::Step;
using session::Token;

// Draft tokens supplied by the caller.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Fills `out` with tokens likely to follow `text` (prompt and output, or their end). Returns how
  // many.
  [[nodiscard]] virtual size_t propose(std::span<const Token> text, std::span<Token> out) = 0;
};

// Draft tokens that must be computed: by a draft model (draft_model.h) or an MTP head
// (nextn_draft.h).
class ModelDraftSource {
 public:
  virtual ~ModelDraftSource() = default;
  // Begins a generation on `target`, with at most `most` draft tokens per forward pass. end() keeps
  // the acceptance statistics.
  virtual void start(session::Session& target, size_t most) = 0;
  virtual void end() = 0;
  // Begins drafting what follows the target's sequence and `upcoming`: at most `most` tokens.
  // Returns false if that is not expected to exceed `rate` tokens per millisecond. `said`: tokens
  // since the last call.
  [[nodiscard]] virtual bool begin(std::span<const Token> upcoming, const draft::Setting& setting,
                                   size_t most, int32_t said, double rate) = 0;
  // kDone: draft_tokens() are ready, and the first checked() of them are worth checking.
  [[nodiscard]] virtual Step step(int32_t max_ops) = 0;
  [[nodiscard]] virtual std::span<const Token> draft_tokens() const = 0;
  [[nodiscard]] virtual size_t checked() const = 0;
  virtual void judge(size_t i, bool right) = 0;
  [[nodiscard]] virtual Status failure() const = 0;
  virtual void cancel() = 0;
};

// Where draft tokens come from: `source` if it is set, else whichever of the other two is expected
// to be faster.
struct Drafts {
  bool ngram = false;  // from what followed the same tokens earlier in prompt and output
  ModelDraftSource* model = nullptr;  // must outlive the generation and serve no other meanwhile
  DraftSource* source = nullptr;      // must outlive the generation; all its tokens are checked
  int32_t most = -1;  // per forward pass; -1: plan().batch.draft_max, the upper bound

  [[nodiscard]] bool any() const { return ngram || model != nullptr || source != nullptr; }
};

class Drafter {
 public:
  Drafter(session::Session& target, const Drafts& options);
  ~Drafter();
  Drafter(const Drafter&) = delete;
  Drafter& operator=(const Drafter&) = delete;
  // Errors: kBudgetTooSmall if the plan has no memory for draft tokens, kOutOfMemory.
  [[nodiscard]] Status start(std::span<const Token> prompt);

  // Notes a generated token and judges the draft token in its place.
  void said(Token token);
  // Begins drafting what follows the target's sequence and `upcoming`, the tokens that the next
  // forward pass begins with: at most `most` tokens.
  void begin(std::span<const Token> upcoming, int32_t most);
  // kDone: draft_tokens() are ready. Other results as from a forward pass of the draft model.
  [[nodiscard]] Step step(int32_t max_ops);
  // The tokens that the next forward pass checks.
  [[nodiscard]] std::span<const Token> draft_tokens() const { return all_drafts().first(checked_); }
  [[nodiscard]] Status failure() const { return options_.model->failure(); }
  void cancel();

 private:
  // Whether the token is in the target's vocabulary.
  [[nodiscard]] bool known(Token token) const {
    return token >= 0 && token < target_.context().program.hp.n_vocab;
  }
  [[nodiscard]] std::span<const Token> all_drafts() const {
    return by_model_ ? options_.model->draft_tokens() : std::span<const Token>(tokens_.data(), n_);
  }
  void take_from_source(size_t most);
  [[nodiscard]] draft::Choice draft_by_ngram(size_t most, const draft::Setting& setting);

  session::Session& target_;
  const Drafts options_;
  draft::NgramIndex index_;
  draft::AcceptanceStats trust_;
  std::vector<Token> tokens_;
  std::vector<double> chance_;
  size_t n_ = 0, checked_ = 0, judged_ = 0;  // draft tokens; those in the pass; those judged
  int32_t match_ = 0;                        // length of the n-gram match; 0: none
  bool by_model_ = false;                    // the draft tokens are from options_.model
  int32_t said_ = 0;                         // tokens since the last pass began
};

}  // namespace sluice::generate
