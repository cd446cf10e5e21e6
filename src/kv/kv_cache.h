// KV cache and recurrent states of all sequences. All sequences share one pool whose size is in the
// plan; nothing is allocated later. The KV cache is [layer][KV head][slot][head size]. A layer
// with full attention has a slot for each position, so truncating a sequence moves no data. A layer
// with a window reuses its slots as a ring.
//
// What a query sees depends only on positions, so every batch length, split and thread count gives
// the same bits. In f16 and q8_0 each position is a row of its own. In q4_0 and q2 a group of
// kKvGroup positions is quantized when its last position arrives, from f16 copies in a second ring.
// A query sees its own group as f16 and all earlier groups quantized, even if the rest of its group
// is in the same batch. Continuing at the first position of a group therefore needs no f16 copies:
// a sequence that rewinds farther than the f16 ring reaches rewinds to the start of a group.
//
// A layer that evicts (kv_policy.h) stores f16 copies of the first positions beside its ring. Under
// "heavy-hitter" it stores f16 copies of positions chosen from those that leave the ring, in no
// order, with keys rotated back to position 0. It then also stores how much attention each position
// received, and sampled queries (observers) of the current block, which measure that attention.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "base/status.h"
#include "kernels/kernels.h"
#include "kv/kv_policy.h"

namespace sluice::kv {

using kernels::KvType;

// Storage of one head, in order.
enum class KvPart : uint8_t {
  kKeys,  // rings, as are the recent copies
  kValues,
  kRecentKeys,  // f16 copies, if the type is grouped
  kRecentValues,
  kKeptKeys,  // f16, outside the ring: sinks or heavy hitters
  kKeptValues,
  kAttended,   // heavy-hitter: f32 sums of attention, of kept positions and then the ring's
  kObservers,  // heavy-hitter: f32 queries
};
inline constexpr KvPart kKvParts[] = {KvPart::kKeys,         KvPart::kValues,   KvPart::kRecentKeys,
                                      KvPart::kRecentValues, KvPart::kKeptKeys, KvPart::kKeptValues,
                                      KvPart::kAttended,     KvPart::kObservers};

struct LayerShape {
  int32_t heads = 0;  // KV heads; 0: the layer has no attention
  int32_t dk = 0, dv = 0;
  int32_t window = 0;           // positions that a query sees, itself included; 0: all
  int32_t capacity = 0;         // positions in the cache: n_ctx, or the size of the ring
  int64_t state = 0;            // f32 values of the recurrent state; 0: none
  bool values_in_keys = false;  // a value is the first dv elements of its key; no separate values
  KvType k_type = KvType::kF16, v_type = KvType::kF16;
  int32_t recent = 0;   // positions of the ring of f16 copies; > 0 if either type is grouped
  bool evicts = false;  // `window` is the KV policy's; the first `sinks` positions are seen too
  int32_t sinks = 0;
  // Heavy-hitter policy: slots for positions kept after they left the ring of `capacity` positions.
  // The first `sinks` of them are never replaced.
  int32_t slots = 0;
  Eviction eviction{};
  int32_t observers = 0, group = 0;  // observer queries per block, and query heads per KV head

  // The first position in the ring that the query at `position` sees.
  [[nodiscard]] int32_t seen_from(int32_t position) const;
  // Number of positions outside the ring (sinks or heavy hitters) that it sees.
  [[nodiscard]] int32_t apart(int32_t position) const;
  // Distance between observer queries. The last query of a block is always an observer.
  [[nodiscard]] int32_t observer_stride() const { return eviction.block / observers; }
  [[nodiscard]] bool quantized() const { return k_type != KvType::kF16 || v_type != KvType::kF16; }
  // Elements of a value that is stored separately from its key, per position and head.
  [[nodiscard]] int32_t own_values() const { return values_in_keys ? 0 : dv; }
  // A part of one head's storage: `units` units of `bytes` bytes that hold `positions` positions.
  struct Part {
    int32_t positions = 1;  // of a unit
    int64_t units = 0, bytes = 0;
    [[nodiscard]] int64_t total() const { return units * bytes; }
  };
  [[nodiscard]] Part part(KvPart part) const;
};

struct KvShape {
  std::vector<LayerShape> layers;
  int32_t n_ctx = 0;
  bool bidirectional = false;  // each input is one batch; a longer input is computed from its start
  bool answers = false;       // encoder-decoder: the encoder's input as one batch, then the decoder
  Eviction eviction{};        // of all heavy-hitter layers
  int32_t n_checkpoints = 0;  // copies of all recurrent states that a sequence may keep
  bool on_gpu = false;        // the GPU has the KV cache, and only recurrent states have memory

  [[nodiscard]] bool recurrent() const;
  [[nodiscard]] bool quantized() const;
  // Whether a batch can hold only one input, because inputs cannot each start at an empty cache.
  [[nodiscard]] bool one_text() const { return recurrent() || quantized(); }
  [[nodiscard]] int32_t recent() const;        // positions of the f16 copies; 0: none
  [[nodiscard]] uint64_t state_bytes() const;  // of all recurrent layers together, once
  [[nodiscard]] uint64_t bytes() const;        // of one sequence
};

// The memory of one sequence. A view: copying it copies no keys.
class KvCache {
 public:
  KvCache() = default;
  [[nodiscard]] const KvShape& shape() const { return layout_->shape; }
  [[nodiscard]] const LayerShape& layer(int32_t index) const {
    return layout_->shape.layers[static_cast<size_t>(index)];
  }
  // Null if the GPU has the KV cache.
  [[nodiscard]] uint8_t* part(int32_t layer, int32_t head, KvPart part) const;
  // [capacity][dk] and [capacity][dv] of one head; position p is at place(layer, p). The stride of
  // values that lie in their keys is dk.
  [[nodiscard]] uint8_t* keys(int32_t layer, int32_t head) const {
    return part(layer, head, KvPart::kKeys);
  }
  [[nodiscard]] uint8_t* values(int32_t layer, int32_t head) const {
    return part(layer, head, values_part(layer, KvPart::kKeys, KvPart::kValues));
  }
  // [recent][dk] and [recent][dv]; position p is at p % recent.
  [[nodiscard]] kernels::f16* recent_keys(int32_t layer, int32_t head) const {
    return reinterpret_cast<kernels::f16*>(part(layer, head, KvPart::kRecentKeys));
  }
  [[nodiscard]] kernels::f16* recent_values(int32_t layer, int32_t head) const {
    return reinterpret_cast<kernels::f16*>(part(layer, head, KvPart::kRecentValues));
  }
  // [sinks][dk] and [sinks][dv], or [slots][…] under "heavy-hitter".
  [[nodiscard]] kernels::f16* kept_keys(int32_t layer, int32_t head) const {
    return reinterpret_cast<kernels::f16*>(part(layer, head, KvPart::kKeptKeys));
  }
  [[nodiscard]] kernels::f16* kept_values(int32_t layer, int32_t head) const {
    return reinterpret_cast<kernels::f16*>(
        part(layer, head, values_part(layer, KvPart::kKeptKeys, KvPart::kKeptValues)));
  }
  // Heavy-hitter layers: [slots + capacity] sums of attention, and [group][dk] of one observer.
  [[nodiscard]] float* attended(int32_t layer, int32_t head) const {
    return reinterpret_cast<float*>(part(layer, head, KvPart::kAttended));
  }
  [[nodiscard]] float* observer(int32_t layer, int32_t head, int32_t index) const {
    return reinterpret_cast<float*>(part(layer, head, KvPart::kObservers) +
                                    index * this->layer(layer).part(KvPart::kObservers).bytes);
  }
  [[nodiscard]] int64_t place(int32_t layer, int64_t position) const {
    return position % this->layer(layer).capacity;
  }
  // [state] f32 of a recurrent layer. Copies 0 and 1 alternate as the state before and after a
  // batch, so abandoning a batch costs nothing. Copy 2 + i is checkpoint i.
  [[nodiscard]] float* state(int32_t layer, int32_t copy) const;
  // Its number in the pool.
  [[nodiscard]] size_t index() const { return index_; }

 private:
  friend class KvPool;
  [[nodiscard]] KvPart values_part(int32_t layer, KvPart keys, KvPart values) const {
    return this->layer(layer).values_in_keys ? keys : values;
  }
  struct Layout {
    KvShape shape;
    std::vector<uint64_t> offset;  // of each layer, bytes
    uint64_t stride = 0;           // bytes of a sequence
    AlignedBuffer memory;
  };
  [[nodiscard]] uint8_t* base(int32_t layer) const {
    return layout_->memory.as<uint8_t>() + index_ * layout_->stride +
           layout_->offset[static_cast<size_t>(layer)];
  }
  const Layout* layout_ = nullptr;
  size_t index_ = 0;
};

// The memory of all sequences; their number comes from the plan.
class KvPool {
 public:
  // Again, for as many sequences: what they hold is lost.
  [[nodiscard]] Status init(const KvShape& shape, int32_t n_sequences);
  // Empties recurrent states, as a sequence at position 0 has them.
  void zero();
  // Memory for one more sequence; false if all of it is in use.
  [[nodiscard]] bool acquire(KvCache* out);
  void release(const KvCache& cache);

 private:
  KvCache::Layout layout_;
  std::vector<uint8_t> taken_;
};

}  // namespace sluice::kv
