// Whether the weights that arrive are numbers. Every unit is looked at once under a plan: by the
// thread that packs it, or by those that first multiply it, while its bytes are in their cache. A
// NaN or an infinity that went on would vanish in int8 activations, and leave text without a word.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "residency/residency.h"

namespace sluice::session {

class FiniteCheck {
 public:
  // Another plan: none of its units has been looked at.
  void reset(size_t n_units) { seen_.assign(n_units, 0); }
  [[nodiscard]] bool due(uint32_t unit) const { return seen_[unit] == 0; }
  // All of it has been looked at. Not while other threads ask.
  void done(uint32_t unit) { seen_[unit] = 1; }

  // Looks at n weights of the unit, in file layout; from any thread.
  void look(uint32_t unit, kernels::Type type, const void* weights, int64_t n) {
    if (kernels::all_finite(type, weights, n)) return;
    uint32_t first = bad_.load(std::memory_order_relaxed);
    while (unit < first && !bad_.compare_exchange_weak(first, unit, std::memory_order_relaxed)) {
    }
  }
  // The first unit found to hold what is not a number; kNoUnit: none.
  [[nodiscard]] uint32_t bad() const { return bad_.load(std::memory_order_relaxed); }

 private:
  std::vector<uint8_t> seen_;  // by unit
  std::atomic<uint32_t> bad_{residency::kNoUnit};
};

}  // namespace sluice::session
