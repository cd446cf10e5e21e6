// Where guesses of the next tokens come from, and how many of them a pass checks. What is guessed
// changes no token of an answer: each is chosen from the model's own logits, and a guess that
// differs is thrown away with all that was computed after it.
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

// Guesses of a caller's own.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Fills `out` with what may follow `text` (prompt and answer, or their end); returns how many.
  [[nodiscard]] virtual size_t propose(std::span<const Token> text, std::span<Token> out) = 0;
};

// Guesses that take time: those of a smaller model (draft_model.h).
class ModelDraftSource {
 public:
  virtual ~ModelDraftSource() = default;
  // A text of the target begins, with at most `most` guesses a pass. Ends: what was learned stays.
  virtual void start(session::Session& target, size_t most) = 0;
  virtual void end() = 0;
  // Begins to guess what follows the target's sequence and `upcoming`: at most `most` tokens, if
  // they promise more than `rate` tokens a millisecond. `said`: tokens since the last call.
  [[nodiscard]] virtual bool begin(std::span<const Token> upcoming, const draft::Setting& setting,
                                   size_t most, int32_t said, double rate) = 0;
  // kDone: draft_tokens() are there, and the first checked() of it are worth a pass.
  [[nodiscard]] virtual Step step(int32_t max_ops) = 0;
  [[nodiscard]] virtual std::span<const Token> draft_tokens() const = 0;
  [[nodiscard]] virtual size_t checked() const = 0;
  virtual void judge(size_t i, bool right) = 0;
  [[nodiscard]] virtual Status failure() const = 0;
  virtual void cancel() = 0;
};

// Where guesses come from: what promises most of these, or `source` alone.
struct Drafts {
  bool ngram = false;  // from what followed the same tokens earlier in prompt and answer
  ModelDraftSource* model = nullptr;  // outlives the generation, and guesses for no other meanwhile
  DraftSource* source = nullptr;      // outlives the generation; all of its guesses are checked
  int32_t most = -1;                  // in one pass; -1: plan().draft_max, which bounds it

  [[nodiscard]] bool any() const { return ngram || model != nullptr || source != nullptr; }
};

class Drafter {
 public:
  Drafter(session::Session& target, const Drafts& options);
  ~Drafter();
  Drafter(const Drafter&) = delete;
  Drafter& operator=(const Drafter&) = delete;
  // Errors: kBudgetTooSmall where the plan has no room for guesses, kOutOfMemory.
  [[nodiscard]] Status start(std::span<const Token> prompt);

  // The text goes on with a token: what was guessed in its place is judged.
  void said(Token token);
  // Begins to guess what follows the target's sequence and `upcoming`, which its next pass begins
  // with: at most `most` tokens.
  void begin(std::span<const Token> upcoming, int32_t most);
  // kDone: draft_tokens() are there. Otherwise as a pass of the draft's model.
  [[nodiscard]] Step step(int32_t max_ops);
  // What the next pass checks.
  [[nodiscard]] std::span<const Token> draft_tokens() const { return all_drafts().first(checked_); }
  [[nodiscard]] Status failure() const { return options_.model->failure(); }
  void cancel();

 private:
  // Whether the target has such a token.
  [[nodiscard]] bool known(Token token) const {
    return token >= 0 && token < target_.engine().program().hp.n_vocab;
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
  size_t n_ = 0, checked_ = 0, judged_ = 0;  // guesses; of them, in the pass; said since
  int32_t match_ = 0;                        // tokens that speak for the first; 0: nothing does
  bool by_model_ = false;                    // the guesses are the model's
  int32_t said_ = 0;                         // tokens since the last pass began
};

}  // namespace sluice::generate
