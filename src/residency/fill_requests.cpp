#include "residency/fill_requests.h"

#include <algorithm>

namespace sluice::residency {

bool FillRequests::has_room(uint32_t reserve) const {
  if (pushed_ - collected_ + reserve >= kFillCapacity) return false;
  return queue_->ring[pushed_ % kFillCapacity].state.load(std::memory_order_acquire) == kFillFree;
}

void FillRequests::push(uint32_t file, uint64_t offset, uint32_t length, void* dst, int32_t unit) {
  FillRequest& r = queue_->ring[pushed_ % kFillCapacity];
  r.offset = offset;
  r.dst = reinterpret_cast<uintptr_t>(dst);
  r.length = length;
  r.file = file;
  r.unit = unit < 0 ? kFillRow : static_cast<uint32_t>(unit);
  pending_[pushed_ % kFillCapacity] = unit;
  r.state.store(kFillPending, std::memory_order_release);
  ++pushed_;
  queue_->pushed.store(pushed_, std::memory_order_release);
#ifdef __EMSCRIPTEN__
  // The driver waits with JavaScript's Atomics.
  __builtin_wasm_memory_atomic_notify(reinterpret_cast<int*>(&queue_->pushed), 1);
#else
  platform::futex_wake_all(queue_->pushed);
#endif
}

bool FillRequests::request_row(size_t table, uint32_t file, uint64_t offset, uint32_t length,
                               void* dst) {
  if (!has_room(0)) return false;
  ++rows_under_way_[table];
  push(file, offset, length, dst, row_of(table));
  return true;
}

void FillRequests::finish(uint32_t n, bool good) {
  queue_->ring[n % kFillCapacity].state.store(good ? kFillLocal : kFillFailed,
                                              std::memory_order_release);
  queue_->completed.fetch_add(1);
}

// A moving average, so a thread that is descheduled for a moment does not look like a slow device.
void FillRequests::note_rate(uint64_t bytes, uint64_t ns) {
  const uint32_t now =
      static_cast<uint32_t>(std::min<uint64_t>(1000 * bytes / (ns + 1), kMaxSpeed));
  const uint32_t before = std::min(queue_->rate.load(std::memory_order_relaxed), kMaxSpeed);
  queue_->rate.store((3 * before + now) / 4, std::memory_order_relaxed);
}

}  // namespace sluice::residency
