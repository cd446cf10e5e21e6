// What happens when the KV cache is full. "full": no further token is accepted. "window": a query
// sees the first positions (attention sinks) and the most recent ones, as if those between had
// never existed (https://arxiv.org/abs/2309.17453), so a sequence of any length fits the same
// memory. "heavy-hitter" also keeps the positions that received most attention
// (https://arxiv.org/abs/2306.14048). Recent positions are in a ring, which evicts whole blocks;
// each KV head chooses which of the evicted positions to keep.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace sluice::kv {

inline constexpr int32_t kDefaultSinks = 4;    // enough according to the first paper
inline constexpr int32_t kMinPositions = 128;  // smallest capacity of a cache that evicts

struct KvPolicy {
  bool window = false, heavy_hitter = false;  // at most one
  int32_t sinks = kDefaultSinks;              // first positions, always seen
  int32_t capacity = 0;                       // positions with memory; 0: the context length

  [[nodiscard]] bool evicts() const { return window || heavy_hitter; }
  // How many of `size` positions are reserved for a batch and for rewinding.
  [[nodiscard]] static constexpr int32_t spare(int32_t size) {
    return std::clamp(size / 8 / 32 * 32, 32, 256);
  }
};

// A ring that evicts `block` positions at a time once it is full. What has been evicted depends
// only on the position of the query, so the results do not depend on where batches end.
struct Eviction {
  int32_t ring = 0, block = 0;  // positions; ring is a multiple of block; 0: nothing is evicted

  // Number of positions evicted before the query at `position`.
  [[nodiscard]] int32_t gone(int32_t position) const;
  // Number of positions, starting at `position`, before the next eviction.
  [[nodiscard]] int32_t until(int32_t position) const;
};

// `name`: "full" (also ""), "window" or "heavy-hitter". `sinks` below 0 and `capacity` 0 mean the
// defaults. Errors: kInvalidArgument for an unknown name, and for sinks or capacity with a policy
// that does not evict.
[[nodiscard]] Result<KvPolicy> parse_kv_policy(std::string_view name, int32_t sinks,
                                               int32_t capacity);

}  // namespace sluice::kv
