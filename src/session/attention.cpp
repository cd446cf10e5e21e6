// Attention over the KV cache. Positions are split at the same absolute multiples for every query,
// and parts are merged in order. So a row's result depends neither on how many rows are computed
// together nor on threads, and prefill is bit-identical to decode.
#include "session/attention.h"

#include <algorithm>
#include <cmath>

#include "session/kv_heavy_hitter.h"

namespace sluice::session {

using model::AttentionOp;
using model::Buf;

namespace {

// Positions that one query sees: from `begin` on, in parts that begin at multiples of `length`,
// plus `kept` positions outside the ring (sinks or heavy hitters).
struct Parts {
  int32_t begin, length, first, last, kept;
  [[nodiscard]] int32_t count() const { return last + 1 - first + (kept > 0 ? 1 : 0); }
};

void attend_tile(CpuBatch& cx, const AttentionOp& op, int32_t head, int32_t first, int32_t count,
                 int thread);
void attend_part(CpuBatch& cx, const AttentionOp& op, int32_t head, int32_t index, int thread);
void merge_parts(CpuBatch& cx, const AttentionOp& op, int32_t head);
void attend_text_tile(CpuBatch& cx, const AttentionOp& op, int32_t head, const TextTile& text,
                      bool cross, int thread);
void quantize_groups(CpuBatch& cx, const model::AttentionShape& att);
void attend(CpuBatch& cx, const AttentionOp& op);
void attend_texts(CpuBatch& cx, const AttentionOp& op, bool cross);
Parts parts_of(CpuBatch& cx, const AttentionOp& op, int32_t position);

// Stores one head's key or value at its position; for grouped types, in the f16 ring.
void store_vector(CpuBatch& cx, const kv::LayerShape& layer, kernels::KvType type, const float* x,
                  int32_t n, int32_t position, uint8_t* cache, kernels::f16* copies) {
  const int64_t place = position % layer.capacity;
  if (type == kernels::KvType::kF16) {
    cx.table.f32_to_f16(x, n, reinterpret_cast<kernels::f16*>(cache) + place * n);
  } else if (kernels::kv_grouped(type)) {
    cx.table.f32_to_f16(x, n, copies + int64_t{position % layer.recent} * n);
  } else {
    cx.table.quantize_kv(x, n, cache + place * kernels::kv_row_bytes(type, n));
  }
}

}  // namespace

void store_kv(CpuBatch& cx, int32_t layer_index, const model::AttentionShape& att) {
  if (!att.owned_by(layer_index)) return;
  const int32_t dk = att.dk, dv = att.dv;
  const kv::KvCache& cache = cx.sequence->cache();
  const kv::LayerShape& layer = cache.layer(att.cache);
  cx.for_rows(cx.rows, [&](int32_t t) {
    const float* row = cx.buffer(Buf::kQkv) + t * cx.width(Buf::kQkv);
    const float *k = row + att.keys(), *v = row + att.values();
    for (int32_t h = 0; h < att.kv_heads; ++h) {
      store_vector(cx, layer, layer.k_type, k + h * dk, dk, cx.first + t, cache.keys(att.cache, h),
                   cache.recent_keys(att.cache, h));
      if (layer.slots == 0 && cx.first + t < layer.sinks) {
        kernels::f16* const values = cache.kept_values(att.cache, h) + int64_t{cx.first + t} * dv;
        kernels::f16* const keys = cache.kept_keys(att.cache, h) + int64_t{cx.first + t} * dk;
        if (!att.values_in_keys) cx.table.f32_to_f16(v + h * dv, dv, values);
        cx.table.f32_to_f16(k + h * dk, dk, keys);
      }
      if (att.values_in_keys) continue;
      store_vector(cx, layer, layer.v_type, v + h * dv, dv, cx.first + t,
                   cache.values(att.cache, h), cache.recent_values(att.cache, h));
    }
  });
  if (layer.recent > 0) quantize_groups(cx, att);
}

namespace {

// Quantizes the groups that this batch completes.
void quantize_groups(CpuBatch& cx, const model::AttentionShape& att) {
  constexpr int32_t kGroup = kernels::kKvGroup;
  const kv::KvCache& cache = cx.sequence->cache();
  const kv::LayerShape& layer = cache.layer(att.cache);
  const int32_t n_kv = att.kv_heads, first = cx.first / kGroup;
  const auto quantize = [&](int64_t group, bool keys, int32_t n, uint8_t* to,
                            const kernels::f16* copies) {
    const kernels::KvType type = keys ? layer.k_type : layer.v_type;
    if (!kernels::kv_grouped(type)) return;
    const int64_t position = group * kGroup;
    cx.table.quantize_kv_group(type, keys, copies + position % layer.recent * n, n,
                               to + position % layer.capacity * kernels::kv_row_bytes(type, n));
  };
  const int64_t tasks = int64_t{(cx.first + cx.rows) / kGroup - first} * n_kv;
  if (tasks == 0) return;
  cx.pool.parallel_for(tasks, [&](int64_t task, int) {
    const int32_t h = static_cast<int32_t>(task % n_kv);
    const int64_t group = first + task / n_kv;
    quantize(group, true, att.dk, cache.keys(att.cache, h), cache.recent_keys(att.cache, h));
    if (att.values_in_keys) return;
    quantize(group, false, att.dv, cache.values(att.cache, h), cache.recent_values(att.cache, h));
  });
}

// Whether vectors of this type are stored rotated (quantization error shrinks). Keys of q2 are not:
// they are quantized by channel, where an outlier channel does not affect the others.
bool rotates(kernels::KvType type, bool keys) {
  return type != kernels::KvType::kF16 && !(keys && type == kernels::KvType::kQ2);
}

}  // namespace

// Rotates a key or query into the space in which keys are stored; applying it twice restores it. A
// key that contains its value is rotated in two parts, so that the value is rotated separately.
void rotate_key(CpuBatch& cx, const model::AttentionShape& att, float* x) {
  if (!rotates(cx.sequence->cache().layer(att.cache).k_type, true)) return;
  const int32_t inner = att.values_in_keys ? att.dv : att.dk;
  cx.table.rotate(x, inner);
  cx.table.rotate(x + inner, att.dk - inner);
}

namespace {

// Rotates keys and values before they are stored, and queries, which leaves scores unchanged.
void rotate_heads(CpuBatch& cx, int32_t layer_index, const model::AttentionShape& att) {
  const kv::LayerShape& layer = cx.sequence->cache().layer(att.cache);
  const bool owned = att.owned_by(layer_index);
  cx.for_rows(cx.rows, [&](int32_t t) {
    float* row = cx.buffer(Buf::kQkv) + t * cx.width(Buf::kQkv);
    const int32_t heads = att.heads + (owned ? att.kv_heads : 0);
    for (int32_t h = 0; h < heads; ++h) rotate_key(cx, att, row + int64_t{h} * att.dk);
    if (!owned || att.values_in_keys || !rotates(layer.v_type, false)) return;
    for (int32_t h = 0; h < att.kv_heads; ++h) {
      cx.table.rotate(row + att.values() + int64_t{h} * att.dv, att.dv);
    }
  });
}

}  // namespace

void fill_cache(CpuBatch& cx, int32_t layer_index, const AttentionOp& op) {
  const kv::LayerShape& layer = cx.sequence->cache().layer(op.att.cache);
  if (layer.quantized()) rotate_heads(cx, layer_index, op.att);
  if (layer.slots > 0 && cx.spec.ends.empty()) {
    HeavyHitter heavy(cx, op);
    heavy.evict_block(layer_index);
    if (op.att.owned_by(layer_index)) heavy.keep_observers();
  }
  store_kv(cx, layer_index, op.att);
}

void op_attention(CpuBatch& cx, int32_t layer_index, const AttentionOp& op) {
  const kv::LayerShape& layer = cx.sequence->cache().layer(op.att.cache);
  fill_cache(cx, layer_index, op);
  if (!cx.spec.ends.empty()) return attend_texts(cx, op, /*cross=*/false);
  attend(cx, op);
  if (!layer.quantized()) return;
  if (cx.observed) rotate_heads(cx, layer_index, op.att);
  if (!rotates(layer.v_type, false)) return;
  cx.for_rows(cx.rows, [&](int32_t t) {
    float* out = cx.buffer(Buf::kAtt) + t * cx.width(Buf::kAtt);
    for (int32_t h = 0; h < op.att.heads; ++h) {
      cx.table.rotate(out + int64_t{h} * op.att.dv, op.att.dv);
    }
  });
}

void op_cross(CpuBatch& cx, const model::CrossOp& op) {
  attend_texts(cx, {.att = op.att, .scale = op.scale, .softcap = op.softcap}, /*cross=*/true);
}

namespace {

void attend(CpuBatch& cx, const AttentionOp& op) {
  const int32_t n_kv = op.att.kv_heads;
  if (cx.rows == 1 && cx.plan.working().attention_parts() > 1) {
    const int32_t n = parts_of(cx, op, cx.first).count();
    cx.pool.parallel_for(n_kv * n, [&](int64_t task, int thread) {
      attend_part(cx, op, static_cast<int32_t>(task / n), static_cast<int32_t>(task % n), thread);
    });
    for (int32_t h = 0; h < op.att.heads; ++h) merge_parts(cx, op, h);
    return;
  }
  const int32_t tile = attention_tile_tokens(op.att, cx.plan.batch.n_batch);
  const int32_t tiles = (cx.rows + tile - 1) / tile;
  // Late tiles see more positions, so they start first.
  cx.pool.parallel_for(n_kv * tiles, [&](int64_t task, int thread) {
    const int32_t first = (tiles - 1 - static_cast<int32_t>(task / n_kv)) * tile;
    attend_tile(cx, op, static_cast<int32_t>(task % n_kv), first, std::min(tile, cx.rows - first),
                thread);
  });
}

}  // namespace

kernels::AttentionArgs base_args(const kv::KvCache& cache, const AttentionOp& op, int32_t head) {
  kernels::AttentionArgs a{};
  a.k = cache.keys(op.att.cache, head);
  a.v = cache.values(op.att.cache, head);
  a.dk = op.att.dk;
  a.dv = op.att.dv;
  a.v_stride = op.att.values_in_keys ? a.dk : a.dv;
  a.q_stride = a.dk;
  a.out_stride = a.dv;
  a.scale = op.scale != 0 ? op.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(a.dk)));
  a.softcap = op.softcap;
  const kv::LayerShape& layer = cache.layer(op.att.cache);
  a.k_type = layer.k_type;
  a.v_type = layer.v_type;
  if (layer.recent > 0) {
    a.recent_k = cache.recent_keys(op.att.cache, head);
    a.recent_v = cache.recent_values(op.att.cache, head);
    a.recent_size = layer.recent;
  }
  return a;
}

namespace {

// Offset from positions of the part that begins at `first` to slots: a ring holds whole parts.
int32_t part_shift(const kv::KvCache& cache, int32_t layer, int32_t first) {
  return static_cast<int32_t>(cache.place(layer, first)) - first;
}

}  // namespace

// Press, Smith, Lewis 2021 (https://arxiv.org/abs/2108.12409): a geometric series over the heads.
// Heads beyond a power of two take every other member of the series with half the step.
float alibi_slope(const AttentionOp& op, int32_t head) {
  int32_t even = 1;
  while (2 * even <= op.att.heads) even *= 2;
  const double exponent = head < even ? head + 1 : head - even + 0.5;
  constexpr double kLn2 = 0.693147180559945309417;  // exp is already linked, exp2 is not
  return static_cast<float>(std::exp(-double{op.alibi} / even * exponent * kLn2));
}

namespace {

// ALiBi slopes and sinks of a tile's rows: `rows` query heads, from those of KV head `head` on.
void row_terms(CpuBatch& cx, const AttentionOp& op, int32_t head, int32_t rows,
               const TileScratch& s, kernels::AttentionArgs& a) {
  const int32_t group = op.att.group();
  if (a.recent_size > 0) a.position = s.position;
  if (op.alibi != 0) {
    for (int32_t r = 0; r < rows; ++r) {
      s.slope[r] = r < group ? alibi_slope(op, head * group + r) : s.slope[r - group];
    }
    a.slope = s.slope;
    a.position = s.position;
  }
  if (op.relative >= 0) {
    a.relative = cx.vec(op.relative_bias) + head;
    a.relative_stride = op.att.heads;
    a.buckets = cx.program.buckets[static_cast<size_t>(op.relative)].data();
    a.position = s.position;
  }
  if (op.sinks >= 0) {
    for (int32_t r = 0; r < rows; ++r) s.sink[r] = cx.sink(op, head * group + r % group);
    a.sink = s.sink;
  }
}

int32_t part_length(CpuBatch& cx, const kv::LayerShape& layer) {
  const KvPlan& room = cx.plan.kv.layout;
  const int32_t split = attention_split(room.positions);
  return room.evicts() ? std::min(split, layer.capacity) : split;  // a ring may be shorter
}

Parts parts_of(CpuBatch& cx, const AttentionOp& op, int32_t position) {
  const kv::LayerShape& layer = cx.sequence->cache().layer(op.att.cache);
  Parts parts;
  parts.begin = cx.seen_from(op, position);
  if (layer.evicts) parts.begin = std::max(parts.begin, layer.seen_from(position));
  parts.length = part_length(cx, layer);
  parts.first = parts.begin / parts.length;
  parts.last = (cx.seen_to(op, position) - 1) / parts.length;
  parts.kept = layer.slots > 0 ? layer.apart(position) : parts.begin > 0 ? layer.sinks : 0;
  return parts;
}

// Attention to the sinks or heavy hitters, for rows [from, rows) of a tile whose row 0 is a query
// at `position`. Queries are rotated back by the number of evicted positions. The stored keys are
// not rotated again, so no rounding accumulates.
void attend_first(CpuBatch& cx, const AttentionOp& op, int32_t head, const TileScratch& s,
                  int32_t from, int32_t rows, int32_t position, kernels::AttentionArgs a) {
  const kv::KvCache& cache = cx.sequence->cache();
  const kv::LayerShape& layer = cache.layer(op.att.cache);
  for (int32_t r = from; r < rows; ++r) {
    const int32_t t = position + r / op.att.group() - cx.first;
    float* q = s.turned + static_cast<int64_t>(r) * a.dk;
    std::copy_n(a.q + static_cast<int64_t>(r) * a.dk, a.dk, q);
    if (op.rope >= 0) {
      const size_t index = static_cast<size_t>(op.rope);
      const model::RopeHParams& hp = cx.program.ropes[index].hp;
      const float* cos = cx.working.turn_table(index) + int64_t{cx.token + t} * hp.n_rot;
      rotate_key(cx, op.att, q);
      cx.table.rope(q + op.rope_col, cos, cos + hp.n_rot / 2, hp.n_rot, hp.neox);
      rotate_key(cx, op.att, q);
    }
    s.begin[r] = 0;
    s.end[r] = layer.slots > 0 ? layer.apart(cx.first + t) : layer.sinks;
    s.position[r] = layer.sinks + layer.window - 1;
  }
  a.k = cache.kept_keys(op.att.cache, head);
  a.v = cache.kept_values(op.att.cache, head);
  a.k_type = a.v_type = kernels::KvType::kF16;
  a.recent_size = 0;
  a.q = s.turned + static_cast<int64_t>(from) * a.dk;
  a.n_rows = rows - from;
  a.begin = s.begin + from;
  a.end = s.end + from;
  if (op.alibi != 0) {
    a.position = s.position + from;
    a.slope = s.slope + from;
  }
  cx.table.attention(a);
}

// Computes part `index` of the positions for the single token of a decode step; the sinks are the
// last part. Writes to the shared partials: [part][head][dv], then maxima [part][head], then sums.
void attend_part(CpuBatch& cx, const AttentionOp& op, int32_t head, int32_t index, int thread) {
  const int32_t n_head = op.att.heads, group = op.att.group();
  const ComputeBufferShape shape = cx.plan.working();
  const Parts parts = parts_of(cx, op, cx.first);
  kernels::AttentionArgs a = base_args(cx.sequence->cache(), op, head);
  TileScratch s(Carver(cx.working.scratch(thread)), cx.table, group, a.dk, a.dv, 1, shape.evicts);
  const int32_t start = (parts.first + index) * parts.length;
  const int32_t shift = part_shift(cx.sequence->cache(), op.att.cache, start);
  for (int32_t g = 0; g < group; ++g) {
    s.begin[g] = std::max(parts.begin, start) + shift;
    s.end[g] = std::min(cx.seen_to(op, cx.first), start + parts.length) + shift;
    s.position[g] = cx.first + shift;
  }
  row_terms(cx, op, head, group, s, a);
  a.recent_shift = -shift;
  float* partials = cx.working.attention_partials();
  float* maxima = partials + static_cast<int64_t>(shape.attention_parts()) * n_head * a.dv;
  float* sums = maxima + static_cast<int64_t>(shape.attention_parts()) * n_head;
  const int64_t row = static_cast<int64_t>(index) * n_head + head * group;
  a.q = cx.buffer(Buf::kQkv) + static_cast<int64_t>(head) * group * a.dk;
  a.n_rows = group;
  a.begin = s.begin;
  a.end = s.end;
  a.out = partials + row * a.dv;
  a.partial_max = maxima + row;
  a.partial_sum = sums + row;
  a.scratch = s.kernel;
  if (parts.kept > 0 && index == parts.count() - 1) {
    return attend_first(cx, op, head, s, 0, group, cx.first, a);
  }
  cx.table.attention(a);
}

void merge_parts(CpuBatch& cx, const AttentionOp& op, int32_t head) {
  const int32_t n_head = op.att.heads, dv = op.att.dv;
  const int32_t max_parts = cx.plan.working().attention_parts();
  const int32_t n = parts_of(cx, op, cx.first).count();
  const float* partials = cx.working.attention_partials();
  const float* maxima = partials + static_cast<int64_t>(max_parts) * n_head * dv;
  const float* sums = maxima + static_cast<int64_t>(max_parts) * n_head;
  float max[kMaxSplits + 2], sum[kMaxSplits + 2];
  for (int32_t i = 0; i < n; ++i) {
    max[i] = maxima[i * n_head + head];
    sum[i] = sums[i * n_head + head];
  }
  cx.table.attention_merge(partials + static_cast<int64_t>(head) * dv,
                           static_cast<int64_t>(n_head) * dv, max, sum, n, dv, cx.sink(op, head),
                           cx.buffer(Buf::kAtt) + static_cast<int64_t>(head) * dv);
}

// Several inputs in one batch: each is computed as if its keys began the cache, so a row's result
// does not depend on the other inputs.
void attend_texts(CpuBatch& cx, const AttentionOp& op, bool cross) {
  const int32_t n_kv = op.att.kv_heads;
  const int32_t tile_tokens = attention_tile_tokens(op.att, cx.plan.batch.n_batch);
  cx.tiles.clear();
  const auto cut = [&](int32_t text, int32_t length) {
    for (int32_t first = 0; first < length; first += tile_tokens) {
      cx.tiles.push_back({text, length, first, std::min(tile_tokens, length - first)});
    }
  };
  if (cross) {
    cut(0, cx.rows);
  } else {
    cx.for_texts(cut);
  }
  cx.pool.parallel_for(static_cast<int64_t>(cx.tiles.size()) * n_kv, [&](int64_t task, int thread) {
    const TextTile& tile = cx.tiles[static_cast<size_t>(task / n_kv)];
    const int32_t head = static_cast<int32_t>(task % n_kv);
    attend_text_tile(cx, op, head, tile, cross, thread);
  });
}

// The `rows` query rows of a tile: tokens from row `first` of the batch on, for all query heads of
// one KV head.
struct Tile {
  int32_t head, group, first, rows, dv;

  [[nodiscard]] float* row_at(const CpuBatch& cx, Buf buf, int64_t width, int32_t r) const {
    return cx.buffer(buf) + (first + r / group) * cx.width(buf) +
           static_cast<int64_t>(head * group + r % group) * width;
  }
  [[nodiscard]] int32_t position(const CpuBatch& cx, int32_t r) const {
    return cx.first + first + r / group;
  }
};

void gather_queries(const CpuBatch& cx, const Tile& tile, const TileScratch& s, int64_t dk) {
  for (int32_t r = 0; r < tile.rows; ++r) {
    std::copy_n(tile.row_at(cx, Buf::kQkv, dk, r), dk, s.q + static_cast<int64_t>(r) * dk);
  }
}

// Attention over the positions in `s`, in one part.
void attend_rows(CpuBatch& cx, const Tile& tile, const TileScratch& s, kernels::AttentionArgs& a) {
  a.q = s.q;
  a.n_rows = tile.rows;
  a.begin = s.begin;
  a.end = s.end;
  a.out = s.out;
  a.scratch = s.kernel;
  cx.table.attention(a);
  for (int32_t r = 0; r < tile.rows; ++r) {
    std::copy_n(s.out + static_cast<int64_t>(r) * a.dv, a.dv, tile.row_at(cx, Buf::kAtt, a.dv, r));
  }
}

void attend_text_tile(CpuBatch& cx, const AttentionOp& op, int32_t head, const TextTile& text,
                      bool cross, int thread) {
  const int32_t group = op.att.group(), rows = text.count * group;
  kernels::AttentionArgs a = base_args(cx.sequence->cache(), op, head);
  a.k = static_cast<const kernels::f16*>(a.k) + int64_t{text.text} * a.dk;
  a.v = static_cast<const kernels::f16*>(a.v) + int64_t{text.text} * a.v_stride;
  const Tile tile{head, group, text.text + text.first, rows, a.dv};
  TileScratch s(Carver(cx.working.scratch(thread)), cx.table, rows, a.dk, a.dv, 1,
                /*evicts=*/false);
  gather_queries(cx, tile, s, a.dk);
  for (int32_t r = 0; r < rows; ++r) {
    const int32_t position = text.first + r / group;
    s.begin[r] = cross ? 0 : window_begin(op, position);
    s.end[r] = cross ? cx.sequence->source() : window_end(op, position, text.length);
    s.position[r] = position;
  }
  row_terms(cx, op, head, rows, s, a);
  attend_rows(cx, tile, s, a);
}

// Attention to part `split` of the positions, which is row `split - split0` of the partial results.
void attend_tile_part(CpuBatch& cx, const AttentionOp& op, const Tile& tile, const TileScratch& s,
                      int32_t split, int32_t split0, kernels::AttentionArgs& a) {
  // Rows that see this part are contiguous, because later tokens see later positions.
  const kv::KvCache& cache = cx.sequence->cache();
  const int32_t length = part_length(cx, cache.layer(op.att.cache));
  const int32_t shift = part_shift(cache, op.att.cache, split * length);
  int32_t r0 = tile.rows, r1 = 0;
  for (int32_t r = 0; r < tile.rows; ++r) {
    const int32_t position = tile.position(cx, r);
    const int32_t begin = std::max(parts_of(cx, op, position).begin, split * length);
    const int32_t end = std::min(cx.seen_to(op, position), (split + 1) * length);
    if (begin >= end) continue;
    r0 = std::min(r0, r);
    r1 = r + 1;
    s.begin[r] = begin + shift;
    s.end[r] = end + shift;
    s.position[r] = position + shift;
  }
  if (r0 >= r1) return;
  const int64_t row = static_cast<int64_t>(split - split0) * tile.rows + r0;
  a.q = s.q + static_cast<int64_t>(r0) * a.dk;
  a.n_rows = r1 - r0;
  a.begin = s.begin + r0;
  a.end = s.end + r0;
  if (a.position != nullptr) a.position = s.position + r0;
  if (op.alibi != 0) a.slope = s.slope + r0;
  a.recent_shift = -shift;
  a.out = s.out + row * a.dv;
  a.partial_max = s.max + row;
  a.partial_sum = s.sum + row;
  cx.table.attention(a);
}

// Merges the parts [split0, last] of each row; the part after the last is the sinks of the rows
// from `apart` on, which see them separately.
void merge_tile(CpuBatch& cx, const AttentionOp& op, const Tile& tile, const TileScratch& s,
                int32_t split0, int32_t last, int32_t apart) {
  for (int32_t r = 0; r < tile.rows; ++r) {
    const Parts parts = parts_of(cx, op, tile.position(cx, r));
    const int32_t from = parts.first, n = (r < apart ? parts.last : last + 1) + 1 - from;
    float max[kMaxSplits + 2], sum[kMaxSplits + 2];
    for (int32_t i = 0; i < n; ++i) {
      const int64_t row = static_cast<int64_t>(from + i - split0) * tile.rows + r;
      const bool there = from + i <= parts.last || from + i > last;
      max[i] = there ? s.max[row] : kernels::kNoSink;
      sum[i] = there ? s.sum[row] : 0;
    }
    const float* partial = s.out + (static_cast<int64_t>(from - split0) * tile.rows + r) * tile.dv;
    cx.table.attention_merge(partial, int64_t{tile.rows} * tile.dv, max, sum, n, tile.dv,
                             cx.sink(op, tile.head * tile.group + r % tile.group),
                             tile.row_at(cx, Buf::kAtt, tile.dv, r));
  }
}

// Attention of `count` tokens from `first` of the batch, for all query heads of one KV head.
void attend_tile(CpuBatch& cx, const AttentionOp& op, int32_t head, int32_t first, int32_t count,
                 int thread) {
  const int32_t group = op.att.group(), rows = count * group;
  const ComputeBufferShape shape = cx.plan.working();
  kernels::AttentionArgs a = base_args(cx.sequence->cache(), op, head);
  const Tile tile{head, group, first, rows, a.dv};
  TileScratch s(Carver(cx.working.scratch(thread)), cx.table, rows, a.dk, a.dv,
                shape.attention_parts(), shape.evicts);
  gather_queries(cx, tile, s, a.dk);
  row_terms(cx, op, head, rows, s, a);
  if (shape.attention_parts() == 1) {
    for (int32_t r = 0; r < rows; ++r) {
      const int32_t position = s.position[r] = tile.position(cx, r);
      s.begin[r] = cx.seen_from(op, position);
      s.end[r] = cx.seen_to(op, position);
    }
    return attend_rows(cx, tile, s, a);
  }
  a.scratch = s.kernel;
  const int32_t length = part_length(cx, cx.sequence->cache().layer(op.att.cache));
  const int32_t last = (cx.seen_to(op, cx.first + first + count - 1) - 1) / length;
  const int32_t split0 = parts_of(cx, op, cx.first + first).first;
  for (int32_t split = split0; split <= last; ++split) {
    attend_tile_part(cx, op, tile, s, split, split0, a);
  }
  // The sinks are the part after the last one, for the rows that see them separately.
  int32_t apart = 0;
  while (apart < rows && parts_of(cx, op, tile.position(cx, apart)).kept == 0) ++apart;
  if (apart < rows) {
    const int64_t row = static_cast<int64_t>(last + 1 - split0) * rows + apart;
    a.q = s.q;
    a.out = s.out + row * a.dv;
    a.partial_max = s.max + row;
    a.partial_sum = s.sum + row;
    attend_first(cx, op, head, s, apart, rows, cx.first + first, a);
  }
  merge_tile(cx, op, tile, s, split0, last, apart);
}

}  // namespace

}  // namespace sluice::session
