#include "residency/pinned_memory.h"

namespace sluice::residency {

void PinnedUnit::swap(PinnedUnit& other) noexcept {
  std::swap(region_, other.region_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

void PinnedUnit::release() {
  // Discards the pages that only this unit uses; the last unit frees the region.
  if (region_ != nullptr && region_.use_count() > 1) platform::discard(data_, bytes_);
  region_.reset();
}

Status allocate_units(std::span<const uint64_t> bytes, std::vector<PinnedUnit>& units) {
  constexpr bool kShareRegion = platform::kDiscards;
  uint64_t total = 0;
  for (const uint64_t n : bytes) total += round_up_to_line(static_cast<size_t>(n));
  std::shared_ptr<AlignedBuffer> region;
  uint8_t* next = nullptr;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0) continue;
    if (region == nullptr || !kShareRegion) {
      region = std::make_shared<AlignedBuffer>();
      SLUICE_RETURN_IF_ERROR(region->allocate(kShareRegion ? total : bytes[i]));
      next = region->as<uint8_t>();
    }
    PinnedUnit unit;
    unit.region_ = region;
    unit.data_ = next;
    unit.bytes_ = static_cast<size_t>(bytes[i]);
    next += round_up_to_line(unit.bytes_);
    units[i] = std::move(unit);
  }
  return {};
}

}  // namespace sluice::residency
