// Places and sizes in whole units: alignments of files, pages of memories.
#pragma once

#include <cstdint>

namespace sluice {

// The least multiple of `unit` that is no less than `n`, which is at most UINT64_MAX - unit + 1.
[[nodiscard]] constexpr uint64_t round_up(uint64_t n, uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace sluice
