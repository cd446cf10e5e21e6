// Heavy-hitter eviction (H2O, https://arxiv.org/abs/2306.14048): of each block that leaves a
// layer's ring, every KV head keeps the positions that received most attention. Some queries of
// each block (observers) are stored. When the block is complete, their attention over everything
// they saw is added up. So rewinding inside a block needs no undo, and attention itself is
// unchanged. Kept positions are seen as if all stood at one position right before the ring (like
// distant ones in https://kexue.fm/archives/9708). Their keys are rotated only once, so rounding
// does not accumulate however long the sequence becomes. They are stored in f16 for any type of
// the ring.
#pragma once

#include "session/cpu_batch.h"

namespace sluice::session {

// Of one layer, for the current lane of a batch.
class HeavyHitter {
 public:
  HeavyHitter(CpuBatch& batch, const model::AttentionOp& op) : cx_(batch), op_(op) {}
  // Before the first query of a block: evicts the oldest block of the ring.
  void evict_block(int32_t layer);
  // Stores this batch's observer queries until their block is complete.
  void keep_observers();

 private:
  void fill_eviction_table(size_t rope);
  void add_attention(int32_t head, const PickScratch& s);
  void observe_one(int32_t head, int32_t index, const PickScratch& s, float* sums);
  void pick(int32_t head, const PickScratch& s);
  void turn(float* x, int32_t row);
  void widen(int32_t head, int32_t place, bool key, const PickScratch& s);

  CpuBatch& cx_;
  const model::AttentionOp& op_;
};

}  // namespace sluice::session
