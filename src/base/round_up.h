// Rounds offsets and sizes up to whole units, such as file alignments and memory pages.
#pragma once

#include <cstdint>

namespace sluice {

// The smallest multiple of `unit` that is not below `n`. `n` is at most UINT64_MAX - unit + 1.
[[nodiscard]] constexpr uint64_t round_up(uint64_t n, uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace sluice
