// Memory of pinned weights. In native builds all units pinned together share one address range, so
// huge pages cover all of it and not only the aligned part of each unit (worth a seventh of the
// bandwidth). A released unit still returns its pages. In WebAssembly pages cannot be returned and
// addresses count against the budget, so each unit has its own allocation.
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

// Allocates bytes[i] for units[i], aligned to 64; a unit with bytes[i] 0 is not changed.
// Errors: kOutOfMemory; some units may then have memory and others not.
[[nodiscard]] Status allocate_units(std::span<const uint64_t> bytes,
                                    std::vector<PinnedUnit>& units);

}  // namespace sluice::residency
