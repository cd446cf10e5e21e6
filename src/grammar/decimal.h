// Exact decimal numbers, and automata of the numbers within bounds or divisible by one. Grammars
// allow plain numbers: a sign, up to 16 digits without leading zeros, and up to 16 decimals. With
// bounds there is no exponent.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/dfa.h"

namespace sluice::grammar {

inline constexpr uint32_t kMaxDigits = 16;    // before the point
inline constexpr uint32_t kMaxDecimals = 16;  // after the point

// sign * 0.d1 d2 d3… * 10^point, without leading or trailing zero digits; zero has no digits.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t point = 0;

  // nullopt if the exponent exceeds a billion.
  [[nodiscard]] static std::optional<Decimal> parse(std::string_view text);
  [[nodiscard]] bool zero() const { return digits.empty(); }
  [[nodiscard]] bool whole() const {
    return static_cast<int64_t>(digits.size()) <= point || zero();
  }
  [[nodiscard]] Decimal magnitude() const { return {false, digits, point}; }
  bool operator==(const Decimal&) const = default;
};
[[nodiscard]] std::strong_ordering compare(const Decimal& a, const Decimal& b);
// Formatted without an exponent; nullopt if that takes more digits than grammars allow.
[[nodiscard]] std::optional<std::string> plain(const Decimal& d);

// Integers, or all numbers.
[[nodiscard]] Dfa numbers(bool whole);
// The plain numbers below or above a bound, including it if `inclusive`.
[[nodiscard]] Dfa numbers_beyond(const Decimal& bound, bool below, bool inclusive);
// The plain numbers that are a multiple of `divisor` > 0. too_large() if the divisor has too many
// digits.
[[nodiscard]] Dfa multiples(const Decimal& divisor);

}  // namespace sluice::grammar
