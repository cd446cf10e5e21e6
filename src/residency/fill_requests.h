// The engine's side of the ring of read requests (fill_queue.h): pushes requests, frees completed
// ones in the order in which they were pushed, and knows what each is for.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "residency/fill_queue.h"

namespace sluice::residency {

// Bytes per microsecond of one reader; anything faster comes from memory (the page cache).
inline constexpr uint32_t kMemorySpeed = 3000;
inline constexpr uint32_t kMaxSpeed = 4 * kMemorySpeed;  // that is recorded

class FillRequests {
 public:
  static constexpr size_t kMaxTables = 4;

  void init() {
    queue_ = std::make_unique<FillQueue>();
    pending_.assign(kFillCapacity, row_of(0));
  }
  [[nodiscard]] FillQueue& queue() { return *queue_; }
  [[nodiscard]] const FillQueue& queue() const { return *queue_; }
  [[nodiscard]] uint32_t under_way() const { return pushed_ - collected_; }
  // Whether a request can be pushed that leaves `reserve` entries free.
  [[nodiscard]] bool has_room(uint32_t reserve) const;

  // Reads a unit; has_room() must be true.
  void push(uint32_t file, uint64_t offset, uint32_t length, void* dst, int32_t unit);
  // Reads single rows of a table (embeddings) into the caller's memory. The caller waits until
  // rows_under_way(table) is 0. False if the queue is full: poll and try again later.
  [[nodiscard]] bool request_row(size_t table, uint32_t file, uint64_t offset, uint32_t length,
                                 void* dst);
  [[nodiscard]] uint32_t rows_under_way(size_t table) const { return rows_under_way_[table]; }

  // Calls done(unit, state, bytes) for each completed request; the unit is negative for a row. True
  // if there was at least one.
  template <typename Done>
  bool collect(Done&& done);

  // Takes pending requests of units for which local(unit) is true; the caller serves them. Returns
  // how many were written to `out`.
  template <typename Local>
  [[nodiscard]] size_t take(std::span<uint32_t> out, Local&& local);
  // Completes a request that was taken; `good`: the read succeeded.
  void finish(uint32_t n, bool good);
  // Records that all readers together took `ns` to read `bytes` of local files.
  void note_rate(uint64_t bytes, uint64_t ns);

 private:
  // The id in pending_ of a request for a table's row: negative, where units have 0 and up.
  [[nodiscard]] static int32_t row_of(size_t table) { return -1 - static_cast<int32_t>(table); }

  std::unique_ptr<FillQueue> queue_;
  std::vector<int32_t> pending_;  // by entry of the queue: unit, or row_of(table)
  uint32_t pushed_ = 0, collected_ = 0;
  std::array<uint32_t, kMaxTables> rows_under_way_{};
};

template <typename Done>
bool FillRequests::collect(Done&& done) {
  bool any = false;
  // Fills complete in any order; entries are freed in order, so request n stays at n % capacity.
  for (uint32_t n = collected_; n != pushed_; ++n) {
    FillRequest& r = queue_->ring[n % kFillCapacity];
    const uint32_t state = r.state.load(std::memory_order_acquire);
    if (state != kFillDone && state != kFillLocal && state != kFillFailed) continue;
    const int32_t id = pending_[n % kFillCapacity];
    r.state.store(kFillFree, std::memory_order_relaxed);
    any = true;
    if (id < 0) --rows_under_way_[static_cast<size_t>(-1 - id)];
    done(id, state, r.length);
  }
  while (collected_ != pushed_ && queue_->ring[collected_ % kFillCapacity].state.load(
                                      std::memory_order_relaxed) == kFillFree) {
    ++collected_;
  }
  return any;
}

template <typename Local>
size_t FillRequests::take(std::span<uint32_t> out, Local&& local) {
  size_t taken = 0;
  for (uint32_t n = collected_; n != pushed_ && taken < out.size(); ++n) {
    uint32_t pending = kFillPending;
    const int32_t id = pending_[n % kFillCapacity];
    if (id < 0 || !local(id)) continue;
    if (queue_->ring[n % kFillCapacity].state.compare_exchange_strong(pending, kFillTaken)) {
      out[taken++] = n;
    }
  }
  return taken;
}

}  // namespace sluice::residency
