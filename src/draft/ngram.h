// N-gram drafting (prompt lookup): finds the longest earlier occurrence of a text's last tokens and
// proposes the tokens that followed it. This predicts text that repeats itself, such as summaries,
// code edits and lists. Positions with the same last two tokens are chained through a hash table,
// the latest first. Memory is allocated once; a longer text loses its older half.
#pragma once

#include <cstdint>
#include <span>

#include "base/aligned.h"

namespace sluice::draft {

using Token = int32_t;

class NgramIndex {
 public:
  static constexpr int32_t kMaxTokens = 1 << 18;
  static constexpr int32_t kMinMatch = 2;       // tokens
  static constexpr int32_t kLongestMatch = 64;  // tokens

  // Bytes of an index for a context of n_ctx tokens: at most 4 MB.
  [[nodiscard]] static uint64_t memory_bytes(int32_t n_ctx);
  // Errors: kOutOfMemory.
  [[nodiscard]] Status allocate(int32_t n_ctx);

  void push(Token token);
  // The text, or its last part if it is longer than the index holds.
  [[nodiscard]] std::span<const Token> tokens() const {
    return {tokens_, static_cast<size_t>(size_)};
  }
  // Fills `out` with the tokens that followed the longest match, the latest of several. At the end
  // of the text it continues with the tokens already in `out`. Returns the match's length in
  // tokens; 0 if there is none, and `out` is unchanged.
  [[nodiscard]] int32_t propose(std::span<Token> out) const;

 private:
  [[nodiscard]] size_t slot(int32_t at) const;
  void link(int32_t at);
  void halve();
  [[nodiscard]] int32_t match(int32_t at) const;

  AlignedBuffer memory_;
  Token* tokens_ = nullptr;    // [capacity_]
  int32_t* before_ = nullptr;  // [capacity_] the previous position in the same chain; -1: none
  int32_t* latest_ = nullptr;  // [2^bits_] the latest position of each chain; -1: none
  int32_t capacity_ = 0, bits_ = 0, size_ = 0;
};

}  // namespace sluice::draft
