// Checks that weights are finite. Every unit is checked once per plan, by the thread that packs it
// or by those that first multiply it, while its bytes are in their cache. An undetected NaN or
// infinity would vanish in int8 activations and produce wrong text without an error.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "residency/residency.h"

namespace sluice::session {

class FiniteCheck {
 public:
  // A new plan: none of its units has been checked.
  void reset(size_t n_units) { seen_.assign(n_units, 0); }
  [[nodiscard]] bool due(uint32_t unit) const { return seen_[unit] == 0; }
  // Marks the whole unit as checked. Not thread-safe with due().
  void done(uint32_t unit) { seen_[unit] = 1; }

  // Checks n weights of the unit, in the file's layout; from any thread.
  void look(uint32_t unit, kernels::Type type, const void* weights, int64_t n) {
    if (kernels::all_finite(type, weights, n)) return;
    uint32_t first = bad_.load(std::memory_order_relaxed);
    while (unit < first && !bad_.compare_exchange_weak(first, unit, std::memory_order_relaxed)) {
    }
  }
  // The first unit with a value that is not finite; kNoUnit: none.
  [[nodiscard]] uint32_t bad() const { return bad_.load(std::memory_order_relaxed); }

 private:
  std::vector<uint8_t> seen_;  // by unit
  std::atomic<uint32_t> bad_{residency::kNoUnit};
};

}  // namespace sluice::session
