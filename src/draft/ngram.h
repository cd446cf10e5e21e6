// What followed the last time: finds the longest earlier occurrence of a text's end and says the
// tokens that came after it. Text that repeats itself (a summary, an edit of code, a list) goes on
// so. Positions with the same last two tokens are chained through a hash table, the latest first;
// memory is fixed when it is made, and a text longer than that loses its older half.
#pragma once

#include <cstdint>
#include <span>

#include "base/aligned.h"

namespace sluice::draft {

using Token = int32_t;

class NgramIndex {
 public:
  static constexpr int32_t kMaxTokens = 1 << 18;
  static constexpr int32_t kMinMatch = 2;  // tokens
  static constexpr int32_t kLongestMatch = 64;

  // What one for a context of n_ctx tokens holds: at most 4 MB.
  [[nodiscard]] static uint64_t memory_bytes(int32_t n_ctx);
  // Errors: kOutOfMemory.
  [[nodiscard]] Status allocate(int32_t n_ctx);

  void push(Token token);
  // The text, or its end where it is longer than what is held.
  [[nodiscard]] std::span<const Token> tokens() const {
    return {tokens_, static_cast<size_t>(size_)};
  }
  // Fills `out` with what followed the longest match, the latest of several; past the text's end
  // the guess itself goes on. Returns the match's length; 0, and nothing is filled, without one.
  [[nodiscard]] int32_t propose(std::span<Token> out) const;

 private:
  [[nodiscard]] size_t slot(int32_t at) const;
  void link(int32_t at);
  void halve();
  [[nodiscard]] int32_t match(int32_t at) const;

  AlignedBuffer memory_;
  Token* tokens_ = nullptr;    // [capacity_]
  int32_t* before_ = nullptr;  // [capacity_] the position before it in its chain, -1: none
  int32_t* latest_ = nullptr;  // [2^bits_] of each chain
  int32_t capacity_ = 0, bits_ = 0, size_ = 0;
};

}  // namespace sluice::draft
