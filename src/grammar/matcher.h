// Matches tokens against a grammar: which token may come next. States are numbers, so rewinding
// uses a history of them. The sampler's choice is tested first (accepts()). A mask over the whole
// vocabulary is computed only if that is rejected, and masks are cached by state.
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
  static constexpr size_t kHistory = 1024;  // tokens that rewind() can undo; at least half are kept

  // `vocabulary` must outlive it. Errors: kOutOfMemory, kGrammarTooLarge, kInvalidArgument (the
  // grammar matches no text).
  [[nodiscard]] static Result<std::unique_ptr<Matcher>> create(
      std::shared_ptr<const Grammar> grammar, const Vocabulary& vocabulary);
  // Maximum bytes that a matcher holds, without its grammar.
  [[nodiscard]] static uint64_t memory_bytes(int64_t n_tokens);

  // Whether the token may come next. End tokens are accepted where the text may end.
  [[nodiscard]] bool accepts(Token token);
  // Appends the token. False, without any change, if it is not allowed or is an end token.
  bool advance(Token token);
  // Removes the last n tokens, which must be in the history.
  void rewind(size_t n);
  [[nodiscard]] size_t history() const { return past_.size(); }

  // One bit per token that may come next. Valid until the next call.
  [[nodiscard]] std::span<const uint64_t> mask();

  [[nodiscard]] bool can_end() const { return automaton_->final(state_); }
  // Whether the text must end here.
  [[nodiscard]] bool must_end();
  // The bytes that must come next, at most `most`; empty if there is a choice.
  [[nodiscard]] std::string forced(size_t most);

  // The workspace is too small for this text. No token is accepted from then on.
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
  // State after each byte of the token being walked.
  State path_[Vocabulary::kMaxTokenBytes + 1] = {};
  size_t path_length_ = 0;
  std::string spelled_;
  AlignedBuffer masks_;
  State mask_state_[kMasks] = {};
  size_t next_mask_ = 0;
  bool failed_ = false;
};

}  // namespace sluice::grammar
