// A grammar and a vocabulary on one text: which token may come next. A state is a number, so going
// back is a look at the history. The sampler's own choice is tested first (accepts), and a mask
// over the whole vocabulary is made only when that one is refused; masks are kept by state.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/vocabulary.h"

namespace sluice::grammar {

class Matcher {
 public:
  static constexpr uint64_t kWorkspace = 2 << 20;
  static constexpr size_t kHistory = 1024;  // tokens that rewind() can go back, at least half of it

  // `vocabulary` outlives it. Errors: kOutOfMemory, kGrammarTooLarge, kInvalidArgument (the grammar
  // allows no text at all).
  [[nodiscard]] static Result<std::unique_ptr<Matcher>> create(
      std::shared_ptr<const Grammar> grammar, const Vocabulary& vocabulary);
  // What a matcher holds at most, its grammar not counted.
  [[nodiscard]] static uint64_t memory_bytes(int64_t n_tokens);

  // Whether the token may come next: tokens that end the text where it may end.
  [[nodiscard]] bool accepts(Token token);
  // Takes it; false, and nothing has changed, when it may not come next or ends the text.
  bool advance(Token token);
  // Goes back by n tokens, which are in the history.
  void rewind(size_t n);
  [[nodiscard]] size_t history() const { return past_.size(); }

  // A bit for each token that may come next, valid until the next call.
  [[nodiscard]] std::span<const uint64_t> mask();

  [[nodiscard]] bool can_end() const { return automaton_->final(state_); }
  // True when the text can only end here.
  [[nodiscard]] bool must_end();
  // The bytes that must come next, at most `most` of them; empty where there is a choice.
  [[nodiscard]] std::string forced(size_t most);

  // The grammar's states of this text no longer fit the workspace: nothing is allowed any more.
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  static constexpr size_t kMasks = 8;

  Matcher(std::shared_ptr<const Grammar> grammar, const Vocabulary& vocabulary)
      : grammar_(std::move(grammar)), vocabulary_(&vocabulary) {}
  State step(State from, uint8_t byte);
  State after(Token token);
  bool make_room(State* extra);
  int only_byte(State* from);
  void fill(uint64_t* bits);
  void fill_plain(uint32_t kind, uint64_t* bits);
  uint32_t next_apart(uint32_t i, uint32_t end, size_t depth) const;
  void walk(Vocabulary::Group group, uint64_t* bits);
  void allow_named(uint64_t* bits);

  std::shared_ptr<const Grammar> grammar_;
  const Vocabulary* vocabulary_;
  std::unique_ptr<Automaton> automaton_;
  State state_ = kDead;
  std::vector<State> past_;
  // Of a walk: the state after each byte of the token.
  State path_[Vocabulary::kMaxTokenBytes + 1] = {};
  size_t path_length_ = 0;
  std::string spelled_;
  AlignedBuffer masks_;
  State mask_state_[kMasks] = {};
  size_t next_mask_ = 0;
  bool failed_ = false;
};

}  // namespace sluice::grammar
