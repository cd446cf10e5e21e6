// Measures whether direct I/O reads a file faster than the page cache does. Neither way may profit
// from the other or from earlier reads: each reads places of its own, those of the page cache are
// evicted before, and read-ahead counts as time. As much is in flight in both. They take turns, so
// that a device whose rate drifts slows both alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace sluice::io {

constexpr uint64_t kProbeRead = 1 << 20;  // of a read

// How to read. Offsets are multiples of platform::kDirectBlock, and so is the address of a buffer
// of kProbeRead. Several threads read; false: it failed.
struct ProbeReads {
  std::function<bool(uint64_t offset, uint8_t* out)> direct;
  std::function<bool(uint64_t offset, uint8_t* out)> cached;  // with read-ahead by the system
  std::function<void(uint64_t offset)> evict;                 // what `cached` leaves in memory
  std::function<double()> clock;                              // milliseconds
};

// Whether direct I/O pays for a file of `size` bytes, with `threads` reads in flight. False if a
// read fails, or if the file is too small for the probes. `seed` chooses the places.
[[nodiscard]] bool direct_io_pays(uint64_t size, size_t threads, uint64_t seed,
                                  const ProbeReads& reads);

}  // namespace sluice::io
