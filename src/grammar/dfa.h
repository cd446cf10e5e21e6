// A deterministic automaton over the bytes of whole values: a string before JSON escaping, or the
// digits of a number. Regular languages are combined here (and, or, minus) before they become part
// of a grammar. State 0 is the start. Too many states set too_large(), and the caller reports an
// error.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace sluice::grammar {

class Dfa {
 public:
  static constexpr uint32_t kDead = UINT32_MAX;
  static constexpr uint32_t kMaxStates = 12'000;

  Dfa() = default;  // the empty language
  // The texts that a grammar without token references allows.
  [[nodiscard]] static Dfa of(const Grammar& grammar);
  [[nodiscard]] static Dfa all_text();  // valid UTF-8
  [[nodiscard]] static Dfa literal(std::string_view text);
  // Characters; UINT32_MAX: no limit.
  [[nodiscard]] static Dfa lengths(uint32_t least, uint32_t most);

  enum class How : uint8_t { kBoth, kEither, kOnlyFirst };
  [[nodiscard]] static Dfa combine(const Dfa& a, const Dfa& b, How how);

  // A table of n states that the caller numbers: for each state, a successor for each of `symbols`.
  // Other bytes are not allowed.
  [[nodiscard]] static Dfa table(std::string_view symbols, const std::vector<uint32_t>& next,
                                 const std::vector<bool>& accept);
  // Skips any number of `start` bytes at the beginning and `end` bytes at the end, which are not
  // part of the text. Implements anchors (regex.cpp).
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

// Restricts a language to what another has or, with `without`, has not; nullopt is all text.
void narrow(std::optional<Dfa>* language, const Dfa& other, bool without);

}  // namespace sluice::grammar
