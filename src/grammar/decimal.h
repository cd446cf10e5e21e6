// Decimal numbers as they are written, compared exactly, and the automata of the numbers within
// bounds or divisible by one. What grammars allow as a number is plain: a sign, up to 16 digits
// without leading zeros, and up to 16 decimals; no exponent where there are bounds.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/dfa.h"

namespace sluice::grammar {

inline constexpr uint32_t kMaxDigits = 16;    // before the point
inline constexpr uint32_t kMaxDecimals = 16;  // behind it

// sign * 0.d1 d2 d3… * 10^point, without zeros at either end of the digits; zero has none.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t point = 0;

  // Nothing when the exponent is beyond a billion.
  [[nodiscard]] static std::optional<Decimal> parse(std::string_view text);
  [[nodiscard]] bool zero() const { return digits.empty(); }
  [[nodiscard]] bool whole() const {
    return static_cast<int64_t>(digits.size()) <= point || zero();
  }
  [[nodiscard]] Decimal magnitude() const { return {false, digits, point}; }
  bool operator==(const Decimal&) const = default;
};
[[nodiscard]] std::strong_ordering compare(const Decimal& a, const Decimal& b);
// Without an exponent; nothing when that would take more digits than grammars allow.
[[nodiscard]] std::optional<std::string> plain(const Decimal& d);

// Whole numbers, or all; without bounds.
[[nodiscard]] Dfa numbers(bool whole);
// The plain numbers below or above a bound, or at it where `inclusive`.
[[nodiscard]] Dfa numbers_beyond(const Decimal& bound, bool below, bool inclusive);
// The plain numbers that are a multiple of `divisor`, which is above 0. Too large where the divisor
// has too many digits.
[[nodiscard]] Dfa multiples(const Decimal& divisor);

}  // namespace sluice::grammar
