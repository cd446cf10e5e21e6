// Measures attention by observers, and moves positions that receive most of it.
#include "session/kv_heavy_hitter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "session/attention.h"
#include "session/ops.h"
#include "session/rope.h"

namespace sluice::session {

using model::Buf;

// Stores this batch's observer queries until their block is complete.
void HeavyHitter::keep_observers() {
  const kv::KvCache& cache = cx_.sequence->cache();
  const kv::LayerShape& layer = cache.layer(op_.att.cache);
  const int32_t stride = layer.observer_stride();
  const int64_t n = int64_t{op_.att.group()} * op_.att.dk;
  for (int32_t t = 0; t < cx_.rows; ++t) {
    const int32_t in_block = (cx_.first + t) % layer.eviction.block;
    if (in_block % stride != stride - 1) continue;
    const float* q = cx_.buffer(Buf::kQkv) + t * cx_.width(Buf::kQkv);
    for (int32_t h = 0; h < op_.att.kv_heads; ++h) {
      std::copy_n(q + h * n, n, cache.observer(op_.att.cache, h, in_block / stride));
    }
  }
}

// Cosines and sines that rotate the queries before this block the way fill_rope_tables did; then
// those that rotate each evicted key back to position 0.
void HeavyHitter::fill_eviction_table(size_t rope) {
  const kv::Eviction& eviction = cx_.sequence->cache().shape().eviction;
  const int32_t gone = cx_.first - eviction.ring;  // before this block
  const model::RopeHParams& hp = cx_.program.ropes[rope].hp;
  float* table = cx_.working.eviction_table(rope);
  fill_rope_table(hp, rope_factors(cx_, rope), cx_.sequence->rope_position(gone) - 1, 1, table,
                  /*back=*/true);
  fill_rope_rows(cx_, rope, gone, eviction.block, table + hp.n_rot, /*back=*/true);
}

// Before the first query of a block: evicts the oldest block of the ring.
void HeavyHitter::evict_block(int32_t layer_index) {
  if (!op_.att.owned_by(layer_index) || !cx_.sequence->leaves(op_.att.cache, cx_.first)) return;
  if (op_.rope >= 0) fill_eviction_table(static_cast<size_t>(op_.rope));
  cx_.pool.parallel_for(op_.att.kv_heads, [&](int64_t head, int thread) {
    const int32_t places = cx_.plan.kv.layout.positions;
    const PickScratch s(Carver(cx_.working.scratch(thread)), cx_.table, op_.att.group(), op_.att.dk,
                        op_.att.dv, places);
    add_attention(static_cast<int32_t>(head), s);
    pick(static_cast<int32_t>(head), s);
  });
  cx_.sequence->left(op_.att.cache, cx_.first);
}

// Adds up the attention of the last block's observers, in order. Earlier sums are halved first, so
// positions that no longer receive attention are evicted in time.
void HeavyHitter::add_attention(int32_t head, const PickScratch& s) {
  const kv::KvCache& cache = cx_.sequence->cache();
  const kv::LayerShape& layer = cache.layer(op_.att.cache);
  const int32_t chunk = std::min(PickScratch::kChunk, layer.eviction.block);
  std::fill_n(s.unit, chunk * chunk, kernels::f16{});
  constexpr float kOne = 1;
  for (int32_t i = 0; i < chunk; ++i) cx_.table.f32_to_f16(&kOne, 1, s.unit + i * (chunk + 1));
  float* sums = cache.attended(op_.att.cache, head);
  const bool any = cx_.first > layer.capacity;
  for (int32_t i = 0; i < layer.slots + layer.capacity; ++i) sums[i] = any ? sums[i] / 2 : 0;
  for (int32_t i = 0; i < layer.observers; ++i) observe_one(head, i, s, sums);
}

// Rotates x by a row of the eviction table.
void HeavyHitter::turn(float* x, int32_t row) {
  if (op_.rope < 0) return;
  const size_t rope = static_cast<size_t>(op_.rope);
  const model::RopeHParams& hp = cx_.program.ropes[rope].hp;
  const float* cos = cx_.working.eviction_table(rope) + int64_t{row} * hp.n_rot;
  rotate_key(cx_, op_.att, x);
  cx_.table.rope(x + op_.rope_col, cos, cos + hp.n_rot / 2, hp.n_rot, hp.neox);
  rotate_key(cx_, op_.att, x);
}

// Softmax weights are read from attention whose values are the rows of a unit matrix, one chunk of
// positions at a time.
void HeavyHitter::observe_one(int32_t head, int32_t index, const PickScratch& s, float* sums) {
  const kv::KvCache& cache = cx_.sequence->cache();
  const kv::LayerShape& layer = cache.layer(op_.att.cache);
  const int32_t block = layer.eviction.block, group = op_.att.group(), dk = op_.att.dk;
  const int32_t chunk = std::min(PickScratch::kChunk, block);
  const int32_t apart = layer.apart(cx_.first - 1);  // whole chunks, like the ring
  const int32_t own = (cx_.first - block) % layer.capacity;
  const int32_t seen = own + (index + 1) * layer.observer_stride();  // end of what it sees
  const float* q = cache.observer(op_.att.cache, head, index);
  kernels::AttentionArgs a = base_args(cache, op_, head);
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
  for (int32_t r = 0; r < group; ++r) turn(s.turned + r * dk, 0);
  const int32_t n_chunks = (apart + layer.capacity) / chunk;
  // Index of chunk i's first position in the sums.
  const auto place = [&](int32_t i) {
    return i * chunk < apart ? i * chunk : layer.slots + i * chunk - apart;
  };
  for (int32_t i = 0; i < n_chunks; ++i) {
    const int32_t at = place(i), c = at - layer.slots;
    const bool inside = c >= own && c < own + block;
    const int32_t n = inside ? std::clamp(seen - c, 0, chunk) : chunk;
    a.k = cache.kept_keys(op_.att.cache, head) + int64_t{at} * dk;
    if (c >= 0) a.k = ring + c * kernels::kv_row_bytes(type, dk);
    a.k_type = c < 0 ? kernels::KvType::kF16 : type;
    a.q = c < 0 ? s.turned : q;
    a.out = s.weights + at;
    a.partial_max = s.max + i * group;
    a.partial_sum = s.sum + i * group;
    std::fill_n(s.end, group, n);
    std::fill_n(a.partial_max, group, kernels::kNoSink);
    std::fill_n(a.partial_sum, group, 0.0f);
    if (n > 0) cx_.table.attention(a);
  }
  for (int32_t r = 0; r < group; ++r) {
    const float none = cx_.sink(op_, head * group + r);
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
void HeavyHitter::widen(int32_t head, int32_t place, bool key, const PickScratch& s) {
  const kv::KvCache& cache = cx_.sequence->cache();
  kernels::AttentionArgs a = base_args(cache, op_, head);
  if (key) {
    a.v = a.k;
    a.v_type = a.k_type;
    a.dv = a.dk;
    a.v_stride = a.dk;
  }
  s.begin[0] = place;
  s.end[0] = place + 1;
  a.n_rows = 1;
  a.q = cache.observer(op_.att.cache, head, 0);
  a.begin = s.begin;
  a.end = s.end;
  a.position = s.behind;
  a.out = s.turned;
  a.scratch = s.kernel;
  cx_.table.attention(a);
}

// Moves positions of the block with more attention than kept ones into their slots. The sinks are
// never replaced.
void HeavyHitter::pick(int32_t head, const PickScratch& s) {
  const kv::KvCache& cache = cx_.sequence->cache();
  const kv::LayerShape& layer = cache.layer(op_.att.cache);
  const int32_t dk = layer.dk, dv = layer.own_values();
  float* const sums = cache.attended(op_.att.cache, head);
  const int32_t held = layer.apart(cx_.first - 1), block = cx_.first % layer.capacity;
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
    widen(head, from, /*key=*/true, s);
    turn(s.turned, i + 1);
    cx_.table.f32_to_f16(s.turned, dk, cache.kept_keys(op_.att.cache, head) + int64_t{to} * dk);
    if (dv == 0) continue;
    widen(head, from, /*key=*/false, s);
    cx_.table.f32_to_f16(s.turned, dv, cache.kept_values(op_.att.cache, head) + int64_t{to} * dv);
  }
}

}  // namespace sluice::session
