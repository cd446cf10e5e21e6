// The memory of sequences: keys and values, [layer][kv head][place][head size], and the state of
// recurrent layers. A position of a layer that sees everything has its own place, so rewinding is
// forgetting; a layer with a window keeps a ring of places. All sequences that an engine holds at
// once share one pool, whose size is in the plan: nothing here is allocated later.
//
// What a query sees depends on positions alone, so that every batch length, split and thread count
// gives the same bits. In f16 and q8_0 a position is a row by itself. In q4_0 and q2 a group of
// kKvGroup positions is quantized once its last is there, from f16 copies that a ring keeps; a
// query sees the group that it is in itself as f16 and all before it quantized, also where the rest
// of its group is in the same batch. So going on from the first position of a group needs no
// copies: where a sequence goes back further than the ring reaches, it goes to such a position.
//
// A layer that evicts (kv_policy.h) keeps f16 copies of the text's first positions beside its
// ring; or of those that it picks from what leaves the ring, their keys turned back to position 0,
// in no order. Then it also keeps how much each has been attended to, and the queries of the block
// under way that are to tell.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "base/status.h"
#include "kernels/kernels.h"
#include "kv/kv_policy.h"

namespace sluice::kv {

using kernels::KvType;

struct LayerShape {
  int32_t heads = 0;  // of keys and values; 0: the layer has no attention
  int32_t dk = 0, dv = 0;
  int32_t window = 0;           // positions that a query sees, itself included; 0: all
  int32_t capacity = 0;         // positions held: n_ctx, or a ring of fewer
  int64_t state = 0;            // f32 values that a recurrent layer carries on; 0: none
  bool values_in_keys = false;  // the first dv values of a key are its value: nothing else is kept
  KvType k_type = KvType::kF16, v_type = KvType::kF16;
  int32_t recent = 0;   // positions of the ring of f16 copies where either type is grouped
  bool evicts = false;  // the window is not the model's: the first `sinks` positions are seen too
  int32_t sinks = 0;
  // Of a layer that picks: places of those that have left a ring of `capacity` positions. The first
  // `keep` stay.
  int32_t slots = 0;
  Eviction eviction{};
  int32_t observers = 0, group = 0;  // queries of a block that tell, and heads of each

  // The first position, those kept apart, that the query at `position` sees.
  [[nodiscard]] int32_t seen_from(int32_t position) const;
  // Positions kept apart that it sees.
  [[nodiscard]] int32_t apart(int32_t position) const;
  // From one query of a block that tells to the next; the last of a block is one.
  [[nodiscard]] int32_t observer_stride() const { return eviction.block / observers; }
  [[nodiscard]] bool quantized() const { return k_type != KvType::kF16 || v_type != KvType::kF16; }
  // Values kept apart from the key, of one position and head.
  [[nodiscard]] int32_t own_values() const { return values_in_keys ? 0 : dv; }
  // What is kept for one head, in order: keys, values, copies of keys, copies of values, the keys
  // and the values kept apart; of a layer that picks also f32 sums of attention, of the places
  // apart and of the ring's, and queries, [observers][group][dk] of f32. Each is [units] of so many
  // positions and bytes, in places that come round but for the first positions.
  struct Part {
    int32_t positions = 1;  // of a unit
    int64_t units = 0, bytes = 0;
    [[nodiscard]] int64_t total() const { return units * bytes; }
  };
  [[nodiscard]] Part part(int i) const;
  static constexpr int kParts = 8;
};

struct KvShape {
  std::vector<LayerShape> layers;
  int32_t n_ctx = 0;
  bool bidirectional = false;  // a text is read whole: one that is longer begins anew
  bool answers = false;  // the first positions are a source's, read whole; the others answer it
  Eviction eviction{};   // of all layers that pick
  int32_t n_checkpoints = 0;  // copies of all recurrent states that a sequence may keep

  [[nodiscard]] bool recurrent() const;
  [[nodiscard]] bool quantized() const;
  // Whether texts cannot lie side by side in one batch, each as if it began the cache.
  [[nodiscard]] bool one_text() const { return recurrent() || quantized(); }
  [[nodiscard]] int32_t recent() const;  // positions of the f16 copies, 0 where there are none
  [[nodiscard]] uint64_t state_bytes() const;  // of all recurrent layers together, once
  [[nodiscard]] uint64_t bytes() const;        // of one sequence
};

// Where one sequence's memory is. A view: copying it copies no keys.
class KvCache {
 public:
  KvCache() = default;
  [[nodiscard]] const KvShape& shape() const { return layout_->shape; }
  [[nodiscard]] const LayerShape& layer(int32_t index) const {
    return layout_->shape.layers[static_cast<size_t>(index)];
  }
  // Part i of one head: LayerShape::part.
  [[nodiscard]] uint8_t* part(int32_t layer, int32_t head, int i) const;
  // [capacity][dk] and [capacity][dv] of one head; position p is at place(layer, p). Values that
  // are in their keys are dk apart.
  [[nodiscard]] uint8_t* keys(int32_t layer, int32_t head) const { return part(layer, head, 0); }
  [[nodiscard]] uint8_t* values(int32_t layer, int32_t head) const {
    return part(layer, head, values_part(layer, 0));
  }
  // [recent][dk] and [recent][dv]; position p is at p % recent.
  [[nodiscard]] kernels::f16* recent_keys(int32_t layer, int32_t head) const {
    return reinterpret_cast<kernels::f16*>(part(layer, head, 2));
  }
  [[nodiscard]] kernels::f16* recent_values(int32_t layer, int32_t head) const {
    return reinterpret_cast<kernels::f16*>(part(layer, head, 3));
  }
  // [keep][dk] and [keep][dv], or [slots].
  [[nodiscard]] kernels::f16* first_keys(int32_t layer, int32_t head) const {
    return reinterpret_cast<kernels::f16*>(part(layer, head, 4));
  }
  [[nodiscard]] kernels::f16* first_values(int32_t layer, int32_t head) const {
    return reinterpret_cast<kernels::f16*>(part(layer, head, values_part(layer, 4)));
  }
  // Of a layer that picks: [slots + capacity], and [observers][group][dk].
  [[nodiscard]] float* attended(int32_t layer, int32_t head) const {
    return reinterpret_cast<float*>(part(layer, head, 6));
  }
  [[nodiscard]] float* observer(int32_t layer, int32_t head, int32_t index) const {
    return reinterpret_cast<float*>(part(layer, head, 7) +
                                    index * this->layer(layer).part(7).bytes);
  }
  [[nodiscard]] int64_t place(int32_t layer, int64_t position) const {
    return position % this->layer(layer).capacity;
  }
  // [state] f32 of a recurrent layer. Copies 0 and 1 take turns as the state before and after a
  // batch, so that one given up costs nothing; copy 2 + i is checkpoint i.
  [[nodiscard]] float* state(int32_t layer, int32_t copy) const;

 private:
  friend class KvPool;
  [[nodiscard]] int values_part(int32_t layer, int keys) const {
    return this->layer(layer).values_in_keys ? keys : keys + 1;
  }
  struct Layout {
    KvShape shape;
    std::vector<uint64_t> offset;  // of each layer, bytes
  };
  const Layout* layout_ = nullptr;
  uint8_t* base_ = nullptr;
};

// The sequences' memory, as many as the plan says.
class KvPool {
 public:
  [[nodiscard]] Status init(KvShape shape, int32_t n_sequences);
  // Room for one more sequence; false when all is taken.
  [[nodiscard]] bool acquire(KvCache* out);
  void release(const KvCache& cache);

 private:
  KvCache::Layout layout_;
  AlignedBuffer memory_;
  std::vector<uint8_t> taken_;
  uint64_t stride_ = 0;
};

}  // namespace sluice::kv
