// The only interface between the engine and I/O: a ring of read requests in plain memory. The
// engine pushes (file, offset, length, destination). The driver (a native thread or a browser
// worker) fills the destination and marks the request done, in any order and in parallel.
// Engine threads may serve requests too: whoever changes a request from pending to taken serves it.
// Fixed layout, little-endian, so that JavaScript reads it straight from the shared heap:
//   word 0: pushed     total requests ever pushed (engine writes, driver waits on it)
//   word 1: completed  total requests ever completed (driver adds, engine waits on it)
//   word 2: capacity   requests in the ring, a power of two
//   word 3: rate       bytes per microsecond of recent local reads (written by the reader)
//   then `capacity` requests of 32 bytes; request n lives at slot n % capacity.
// A driver that fails leaves its requests pending; it or another driver may serve them later.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/threads.h"

namespace sluice::residency {

inline constexpr uint32_t kFillRow = UINT32_MAX;  // instead of a unit: an embedding row, urgent

enum FillState : uint32_t {
  kFillFree = 0,
  kFillPending = 1,
  kFillDone = 2,
  kFillLocal = 3,   // done; from now on the engine may read these bytes itself
  kFillTaken = 4,   // being served, by the driver or by an engine thread
  kFillFailed = 5,  // a read by an engine thread failed; the engine requests it again
};

struct FillRequest {
  uint64_t offset;  // from the start of the file, in bytes
  uint64_t dst;     // address of the first byte to write
  uint32_t length;  // bytes, > 0
  uint32_t file;    // index of the split
  uint32_t unit;    // for progress and display; kFillRow marks rows, which are served first
  std::atomic<uint32_t> state;
};
static_assert(sizeof(FillRequest) == 32);

inline constexpr uint32_t kFillCapacity = 64;

struct FillQueue {
  std::atomic<uint32_t> pushed{0};
  std::atomic<uint32_t> completed{0};
  uint32_t capacity = kFillCapacity;
  std::atomic<uint32_t> rate{0};
  FillRequest ring[kFillCapacity]{};

  // Driver side: marks request `n` filled and wakes the engine.
  void complete(uint32_t n) {
    ring[n % kFillCapacity].state.store(kFillDone, std::memory_order_release);
    completed.fetch_add(1, std::memory_order_release);
    platform::futex_wake_all(completed);
  }
};
static_assert(sizeof(FillQueue) == 16 + 32 * kFillCapacity);

}  // namespace sluice::residency
