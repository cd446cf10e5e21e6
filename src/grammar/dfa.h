// A deterministic automaton over the bytes of whole values: the text of a string before JSON
// escapes it, or the digits of a number. Regular languages are put together here (and, or, minus)
// before they become part of a grammar; state 0 is the start. What would take too many states is
// `too_large`, and the one who asked refuses it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace sluice::grammar {

class Dfa {
 public:
  static constexpr uint32_t kDead = UINT32_MAX;
  static constexpr uint32_t kMaxStates = 12'000;

  Dfa() = default;  // of no text
  // Of the texts that a grammar without token references allows.
  [[nodiscard]] static Dfa of(const Grammar& grammar);
  [[nodiscard]] static Dfa all_text();  // valid UTF-8
  [[nodiscard]] static Dfa literal(std::string_view text);
  [[nodiscard]] static Dfa lengths(uint32_t least, uint32_t most);  // characters; UINT32_MAX: any

  enum class How : uint8_t { kBoth, kEither, kOnlyFirst };
  [[nodiscard]] static Dfa combine(const Dfa& a, const Dfa& b, How how);

  // The transition table of n states that the caller numbers: for each of them a successor for each
  // of `symbols`; other bytes lead nowhere.
  [[nodiscard]] static Dfa table(std::string_view symbols, const std::vector<uint32_t>& next,
                                 const std::vector<bool>& accept);
  // Where `start` bytes may be passed over at the beginning as often as one likes, and `end` bytes
  // at the end, and both are no part of the text: how anchors are computed (regex.cpp).
  void anchor(uint8_t start, uint8_t end);

  [[nodiscard]] bool too_large() const { return too_large_; }
  [[nodiscard]] bool empty() const { return accept_.empty(); }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(accept_.size()); }
  [[nodiscard]] bool accepts(uint32_t s) const { return accept_[s] != 0; }
  [[nodiscard]] uint32_t next(uint32_t s, uint8_t byte) const {
    return next_[s * n_classes_ + class_[byte]];
  }
  [[nodiscard]] bool matches(std::string_view text) const;

 private:
  [[nodiscard]] static Dfa of(const Grammar& grammar, uint64_t workspace);
  void tidy(uint32_t start);
  void minimize();

  uint8_t class_[256] = {};
  uint32_t n_classes_ = 0;
  std::vector<uint32_t> next_;  // [states][classes]
  std::vector<uint8_t> accept_;
  bool too_large_ = false;
};

}  // namespace sluice::grammar
