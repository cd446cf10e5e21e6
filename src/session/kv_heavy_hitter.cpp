// Heavy-hitter eviction (H2O, https://arxiv.org/abs/2306.14048): of each block that leaves a
// layer's ring, every KV head keeps the positions that received most attention. Some queries of
// each block (observers) are stored. When the block is complete, their attention over everything
// they saw is added up. So rewinding inside a block needs no undo, and attention itself is
// unchanged. Kept positions are seen as if all stood at one position right before the ring (like
// distant ones in https://kexue.fm/archives/9708). Their keys are rotated only once, so rounding
// does not accumulate however long the sequence becomes. They are stored in f16 for any type of
// the ring.
#include <algorithm>
#include <cmath>
#include <utility>

#include "session/cpu_executor.h"
#include "session/rope.h"

namespace sluice::session {

using model::AttentionOp;
using model::Buf;

// Stores this batch's observer queries until their block is complete.
void CpuExecutor::keep_observers(const AttentionOp& op) {
  const kv::KvCache& cache = sequence_->cache();
  const kv::LayerShape& layer = cache.layer(op.att.cache);
  const int32_t stride = layer.observer_stride();
  const int64_t n = int64_t{op.att.group()} * op.att.dk;
  for (int32_t t = 0; t < rows_; ++t) {
    const int32_t in_block = (first_ + t) % layer.eviction.block;
    if (in_block % stride != stride - 1) continue;
    const float* q = buffer(Buf::kQkv) + t * engine_.width(Buf::kQkv);
    for (int32_t h = 0; h < op.att.kv_heads; ++h) {
      std::copy_n(q + h * n, n, cache.observer(op.att.cache, h, in_block / stride));
    }
  }
}

// Cosines and sines that rotate the queries before this block the way fill_rope_tables did; then
// those that rotate each evicted key back to position 0.
void CpuExecutor::fill_eviction_table(size_t rope) {
  const kv::Eviction& eviction = sequence_->cache().shape().eviction;
  fill_rope_table(engine_.program().ropes[rope].hp, rope_factors(rope), first_ - eviction.ring - 1,
                  eviction.block + 1, engine_.working().eviction_table(rope), /*back=*/true);
}

// Before the first query of a block: evicts the oldest block of the ring.
void CpuExecutor::evict_block(int32_t layer_index, const AttentionOp& op) {
  if (!op.att.owned_by(layer_index) || !sequence_->leaves(op.att.cache, first_)) return;
  if (op.rope >= 0) fill_eviction_table(static_cast<size_t>(op.rope));
  engine_.pool().parallel_for(op.att.kv_heads, [&](int64_t head, int thread) {
    const int32_t places = engine_.plan().kv.layout.positions;
    const PickScratch s(Carver(engine_.working().scratch(thread)), engine_.table(), op.att.group(),
                        op.att.dk, op.att.dv, places);
    add_attention(op, static_cast<int32_t>(head), s);
    pick(op, static_cast<int32_t>(head), s);
  });
  sequence_->left(op.att.cache, first_);
}

// Adds up the attention of the last block's observers, in order. Earlier sums are halved first, so
// positions that no longer receive attention are evicted in time.
void CpuExecutor::add_attention(const AttentionOp& op, int32_t head, const PickScratch& s) {
  const kv::KvCache& cache = sequence_->cache();
  const kv::LayerShape& layer = cache.layer(op.att.cache);
  const int32_t chunk = std::min(PickScratch::kChunk, layer.eviction.block);
  std::fill_n(s.unit, chunk * chunk, kernels::f16{});
  constexpr float kOne = 1;
  for (int32_t i = 0; i < chunk; ++i)
    engine_.table().f32_to_f16(&kOne, 1, s.unit + i * (chunk + 1));
  float* sums = cache.attended(op.att.cache, head);
  const bool any = first_ > layer.capacity;
  for (int32_t i = 0; i < layer.slots + layer.capacity; ++i) sums[i] = any ? sums[i] / 2 : 0;
  for (int32_t i = 0; i < layer.observers; ++i) observe_one(op, head, i, s, sums);
}

// Rotates x by a row of the eviction table.
void CpuExecutor::turn(const AttentionOp& op, float* x, int32_t row) {
  if (op.rope < 0) return;
  const size_t rope = static_cast<size_t>(op.rope);
  const model::RopeHParams& hp = engine_.program().ropes[rope].hp;
  const float* cos = engine_.working().eviction_table(rope) + int64_t{row} * hp.n_rot;
  rotate_key(op.att, x);
  engine_.table().rope(x + op.rope_col, cos, cos + hp.n_rot / 2, hp.n_rot, hp.neox);
  rotate_key(op.att, x);
}

// Softmax weights are read from attention whose values are the rows of a unit matrix, one chunk of
// positions at a time.
void CpuExecutor::observe_one(const AttentionOp& op, int32_t head, int32_t index,
                              const PickScratch& s, float* sums) {
  const kv::KvCache& cache = sequence_->cache();
  const kv::LayerShape& layer = cache.layer(op.att.cache);
  const int32_t block = layer.eviction.block, group = op.att.group(), dk = op.att.dk;
  const int32_t chunk = std::min(PickScratch::kChunk, block);
  const int32_t apart = layer.apart(first_ - 1);  // whole chunks, like the ring
  const int32_t own = (first_ - block) % layer.capacity;
  const int32_t seen = own + (index + 1) * layer.observer_stride();  // end of what it sees
  const float* q = cache.observer(op.att.cache, head, index);
  kernels::AttentionArgs a = base_args(cache, op, head);
  const auto* ring = static_cast<const uint8_t*>(a.k);
  const kernels::KvType type = a.k_type;
  a.v = s.unit;
  a.v_type = kernels::KvType::kF16;
  a.dv = chunk;
  a.v_stride = chunk;
  a.n_rows = group;
  a.begin = s.begin;
  a.end = s.end;
  a.position = s.behind;  // all groups of the block are complete
  a.out_stride = int64_t{layer.slots} + layer.capacity;
  a.scratch = s.kernel;
  std::fill_n(s.begin, group, 0);
  std::fill_n(s.behind, group, INT32_MAX);
  std::copy_n(q, group * dk, s.turned);
  for (int32_t r = 0; r < group; ++r) turn(op, s.turned + r * dk, 0);
  const int32_t n_chunks = (apart + layer.capacity) / chunk;
  // Index of chunk i's first position in the sums.
  const auto place = [&](int32_t i) {
    return i * chunk < apart ? i * chunk : layer.slots + i * chunk - apart;
  };
  for (int32_t i = 0; i < n_chunks; ++i) {
    const int32_t at = place(i), c = at - layer.slots;
    const bool inside = c >= own && c < own + block;
    const int32_t n = inside ? std::clamp(seen - c, 0, chunk) : chunk;
    a.k = cache.kept_keys(op.att.cache, head) + int64_t{at} * dk;
    if (c >= 0) a.k = ring + c * kernels::kv_row_bytes(type, dk);
    a.k_type = c < 0 ? kernels::KvType::kF16 : type;
    a.q = c < 0 ? s.turned : q;
    a.out = s.weights + at;
    a.partial_max = s.max + i * group;
    a.partial_sum = s.sum + i * group;
    std::fill_n(s.end, group, n);
    std::fill_n(a.partial_max, group, kernels::kNoSink);
    std::fill_n(a.partial_sum, group, 0.0f);
    if (n > 0) engine_.table().attention(a);
  }
  for (int32_t r = 0; r < group; ++r) {
    const float none = sink(op, head * group + r);
    float top = none;
    for (int32_t i = 0; i < n_chunks; ++i) top = std::max(top, s.max[i * group + r]);
    double total = std::exp(static_cast<double>(none - top));
    for (int32_t i = 0; i < n_chunks; ++i) {
      float& max = s.max[i * group + r];
      max = static_cast<float>(std::exp(static_cast<double>(max - top)));
      total += static_cast<double>(max * s.sum[i * group + r]);
    }
    for (int32_t i = 0; i < n_chunks; ++i) {
      const float share = static_cast<float>(static_cast<double>(s.max[i * group + r]) / total);
      if (share == 0) continue;
      const int32_t at = place(i);
      const float* weights = s.weights + r * a.out_stride + at;
      for (int32_t k = 0; k < chunk; ++k) sums[at + k] += share * weights[k];
    }
  }
}

// Converts the key or value in a slot of the ring to f32 in s.turned. Attention that sees a single
// position returns its value, whatever its type.
void CpuExecutor::widen(const AttentionOp& op, int32_t head, int32_t place, bool key,
                        const PickScratch& s) {
  const kv::KvCache& cache = sequence_->cache();
  kernels::AttentionArgs a = base_args(cache, op, head);
  if (key) {
    a.v = a.k;
    a.v_type = a.k_type;
    a.dv = a.dk;
    a.v_stride = a.dk;
  }
  s.begin[0] = place;
  s.end[0] = place + 1;
  a.n_rows = 1;
  a.q = cache.observer(op.att.cache, head, 0);
  a.begin = s.begin;
  a.end = s.end;
  a.position = s.behind;
  a.out = s.turned;
  a.scratch = s.kernel;
  engine_.table().attention(a);
}

// Moves positions of the block with more attention than kept ones into their slots. The sinks are
// never replaced.
void CpuExecutor::pick(const AttentionOp& op, int32_t head, const PickScratch& s) {
  const kv::KvCache& cache = sequence_->cache();
  const kv::LayerShape& layer = cache.layer(op.att.cache);
  const int32_t dk = layer.dk, dv = layer.own_values();
  float* const sums = cache.attended(op.att.cache, head);
  const int32_t held = layer.apart(first_ - 1), block = first_ % layer.capacity;
  int32_t smallest = -1;  // slot with the smallest sum; -1: not searched yet
  for (int32_t i = 0; i < layer.eviction.block; ++i) {
    const int32_t from = block + i;
    const float sum = std::exchange(sums[layer.slots + from], 0.0f);
    int32_t to = held + i;
    if (held == layer.slots) {
      if (smallest < 0) {
        smallest =
            static_cast<int32_t>(std::min_element(sums + layer.sinks, sums + layer.slots) - sums);
      }
      if (sum <= sums[smallest]) continue;
      to = std::exchange(smallest, -1);
    }
    sums[to] = sum;
    widen(op, head, from, /*key=*/true, s);
    turn(op, s.turned, i + 1);
    engine_.table().f32_to_f16(s.turned, dk,
                               cache.kept_keys(op.att.cache, head) + int64_t{to} * dk);
    if (dv == 0) continue;
    widen(op, head, from, /*key=*/false, s);
    engine_.table().f32_to_f16(s.turned, dv,
                               cache.kept_values(op.att.cache, head) + int64_t{to} * dv);
  }
}

}  // namespace sluice::session
