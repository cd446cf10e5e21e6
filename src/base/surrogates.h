// UTF-16's surrogates: escapes of JSON, Python and regular expressions write a character beyond
// U+FFFF as two of them.
#pragma once

#include <cstdint>

namespace sluice {

[[nodiscard]] constexpr bool is_high_surrogate(uint32_t unit) {
  return unit >= 0xd800 && unit < 0xdc00;
}
[[nodiscard]] constexpr bool is_low_surrogate(uint32_t unit) {
  return unit >= 0xdc00 && unit < 0xe000;
}
// Whether UTF-8 can encode it: a Unicode character that is no half of a pair.
[[nodiscard]] constexpr bool is_scalar_value(uint32_t code) {
  return code <= 0x10ffff && !is_high_surrogate(code) && !is_low_surrogate(code);
}
// The character that a pair encodes.
[[nodiscard]] constexpr uint32_t joined_surrogates(uint32_t high, uint32_t low) {
  return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

}  // namespace sluice
