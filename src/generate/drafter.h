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
class GuessSource {
 public:
  virtual ~GuessSource() = default;
  // Fills `out` with what may follow `text` (prompt and answer, or their end); returns how many.
  [[nodiscard]] virtual size_t guess(std::span<const Token> text, std::span<Token> out) = 0;
};

// Where guesses come from: one of these, or none.
struct Drafts {
  bool ngram = false;  // from what followed the same tokens earlier in prompt and answer
  // From a smaller model with the same vocabulary: on a timeline of its own, which outlives the
  // generation and does nothing else meanwhile.
  session::Session* model = nullptr;
  GuessSource* source = nullptr;  // outlives the generation; all of its guesses are checked
  int32_t most = -1;              // in one pass; -1: plan().draft_max, which bounds it

  [[nodiscard]] bool any() const { return ngram || model != nullptr || source != nullptr; }
};

class Drafter {
 public:
  Drafter(session::Session& target, const Drafts& options);
  // Errors: kBudgetTooSmall where the plan has no room for guesses, kOutOfMemory.
  [[nodiscard]] Status start(std::span<const Token> prompt);

  // The text goes on with a token: what was guessed in its place is judged.
  void said(Token token);
  // Begins to guess what follows the target's timeline and `upcoming`, which its next pass begins
  // with: at most `most` tokens.
  void begin(std::span<const Token> upcoming, int32_t most);
  // kDone: guess() is there. Otherwise as a pass of the draft's model.
  [[nodiscard]] Step step(int32_t max_ops);
  // What the next pass checks.
  [[nodiscard]] std::span<const Token> guess() const { return {guess_.data(), checked_}; }
  [[nodiscard]] Status failure() const { return options_.model->failure(); }
  void cancel();

 private:
  // Whether the target has such a token.
  [[nodiscard]] bool known(Token token) const {
    return token >= 0 && token < target_.engine().program().hp.n_vocab;
  }
  void guess_by_ngram();
  void begin_model(std::span<const Token> upcoming);
  void take_from_model();
  [[nodiscard]] int32_t wanted(size_t n, double each_ms);
  void add(Token token, int32_t level);

  session::Session& target_;
  const Drafts options_;
  draft::NgramIndex index_;
  draft::Trust trust_, model_trust_;  // of each level; of a model's guesses before they are made
  std::vector<Token> text_;           // for the draft's model
  std::vector<Token> guess_;
  std::vector<int32_t> level_;
  std::vector<double> chance_;
  size_t n_ = 0, checked_ = 0, judged_ = 0;  // guesses; of them, in the pass; said since
  size_t most_ = 0;
  draft::Setting setting_;
  bool computing_ = false, given_up_ = false;
  int32_t idle_ = 0;  // tokens since the draft's model was last asked
};

}  // namespace sluice::generate
