// Memory of the weights that stay. Natively all units that are pinned at once share one region of
// addresses: huge pages then cover everything, and not only what each unit happens to align to (a
// seventh of the bandwidth), while a unit that is released gives its pages back by itself. In
// WebAssembly, where pages cannot go back and addresses are the budget, each unit has its own.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/aligned.h"

namespace sluice::residency {

class PinnedUnit {
 public:
  PinnedUnit() = default;
  ~PinnedUnit() { release(); }
  PinnedUnit(PinnedUnit&& other) noexcept { swap(other); }
  PinnedUnit& operator=(PinnedUnit&& other) noexcept {
    PinnedUnit(std::move(other)).swap(*this);
    return *this;
  }
  PinnedUnit(const PinnedUnit&) = delete;
  PinnedUnit& operator=(const PinnedUnit&) = delete;

  [[nodiscard]] uint8_t* data() const { return data_; }
  void swap(PinnedUnit& other) noexcept;

 private:
  friend Status allocate_units(std::span<const uint64_t> bytes, std::vector<PinnedUnit>& units);
  void release();

  std::shared_ptr<AlignedBuffer> region_;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory of bytes[i] for units[i], at multiples of 64; units with bytes[i] 0 are left as they are.
// Errors: kOutOfMemory, after which some may have memory and others none.
[[nodiscard]] Status allocate_units(std::span<const uint64_t> bytes,
                                    std::vector<PinnedUnit>& units);

}  // namespace sluice::residency
