// What becomes of a cache that is full. "full": nothing more is taken. "window": a query sees the
// first positions of the text, whatever its length, and the last ones, as if those between had
// never been (https://arxiv.org/abs/2309.17453), so that a text goes on in the same memory.
// "heavy-hitter": beside them those positions stay that have been attended to most
// (https://arxiv.org/abs/2306.14048). The last ones are a ring that positions leave in blocks; of
// what has left it, each head of keys and values picks its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace sluice::kv {

inline constexpr int32_t kDefaultSinks = 4;    // what the paper found enough
inline constexpr int32_t kMinPositions = 128;  // of a cache that evicts

struct KvPolicy {
  bool window = false, heavy_hitter = false;  // at most one
  int32_t sinks = kDefaultSinks;              // first positions that are always seen
  int32_t capacity = 0;                       // positions that there is memory for; 0: the context

  [[nodiscard]] bool evicts() const { return window || heavy_hitter; }
  // Of `size` positions those that are room for a batch, and to go back in.
  [[nodiscard]] static constexpr int32_t spare(int32_t size) {
    return std::clamp(size / 8 / 32 * 32, 32, 256);
  }
};

// A ring that positions leave `block` at a time, once it is full. Where a query is, says what has
// left, so that no batch has to end with a block to give the same bits.
struct Eviction {
  int32_t ring = 0, block = 0;  // positions; the ring is whole blocks, 0: nothing leaves

  // Positions that have left it for the query at `position`.
  [[nodiscard]] int32_t gone(int32_t position) const;
  // Positions from this one on for which the same have left.
  [[nodiscard]] int32_t until(int32_t position) const;
};

// "full", as is "", "window" or "heavy-hitter"; `sinks` below 0 and `capacity` 0 are not given.
// Errors: kInvalidArgument naming the policies that there are, and for sizes of a cache that does
// not forget.
[[nodiscard]] Result<KvPolicy> parse_kv_policy(std::string_view name, int32_t sinks,
                                               int32_t capacity);

}  // namespace sluice::kv
