// Attention of many query rows over one KV head, in one pass over the positions.
//
// Positions are taken in blocks that start at absolute multiples of kPositions. A block's keys are
// converted from f16 once, transposed, so that a register holds one component of many positions
// and a score needs no horizontal sum; its values are converted in their own order. Rows then pass
// in register tiles: scores, online softmax (Milakov, Gimelshein 2018), weighted values.
// A row's arithmetic is a fixed chain over components, positions, blocks and splits: tiles only
// decide which chains run side by side. So a row has the same bits alone and among others.
#pragma once

#include "kernels/generic/unroll.h"
#include "kernels/generic/vector_math.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kPositions = 32;  // of a block; whole vectors on every target
constexpr int kPanelRows = 64;  // rows that share a converted block; their state stays in cache
constexpr int kBlockVectors = kPositions / kLanes;
// Register tiles, rows x vectors: accumulators plus operands fit 16 or 32 registers.
constexpr int kTileRows = kLanes == 16 ? 8 : 4;
constexpr int kScoreVectors = 2;
static_assert(kBlockVectors % kScoreVectors == 0);

int32_t round_up_to_lanes(int32_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

struct AttentionState {
  float* keys;    // [dk][kPositions]
  float* values;  // [kPositions][ldv], ldv = dv rounded up to lanes, zeros past dv
  float* p;       // [kPanelRows][kPositions] scores, then weights
  float* sum;     // [kPanelRows][kLanes] sum of weights, by lane
  float* acc;     // [kPanelRows][ldv] weighted values of the current split
  float* max;     // [kPanelRows] greatest score of the current split
  float* total_max;
  float* total_sum;  // [kPanelRows] of the splits before
  int32_t ldv;
};

size_t attention_floats(int32_t dk, int32_t dv) {
  const size_t row = kPositions + kLanes + static_cast<size_t>(round_up_to_lanes(dv)) + 3;
  return static_cast<size_t>(dk) * kPositions +
         static_cast<size_t>(round_up_to_lanes(dv)) * kPositions + kPanelRows * row;
}

size_t attention_scratch(int32_t, int32_t dk, int32_t dv) {
  return (attention_floats(dk, dv) * sizeof(float) + 63) / 64 * 64;
}

AttentionState lay_out(void* scratch, int32_t dk, int32_t dv) {
  AttentionState s;
  s.ldv = round_up_to_lanes(dv);
  float* next = static_cast<float*>(scratch);
  const auto take = [&next](int64_t n) {
    float* const taken = next;
    next += n;
    return taken;
  };
  s.keys = take(int64_t{dk} * kPositions);
  s.values = take(int64_t{s.ldv} * kPositions);
  s.p = take(kPanelRows * kPositions);
  s.sum = take(kPanelRows * kLanes);
  s.acc = take(int64_t{s.ldv} * kPanelRows);
  s.max = take(kPanelRows);
  s.total_max = take(kPanelRows);
  s.total_sum = take(kPanelRows);
  return s;
}

// --- a block's keys and values -------------------------------------------------------------------
// Component d .. d + kLanes of one position, zeros past n.
SLUICE_INLINE F32 load_f16_n(const f16* p, int n) {
  if (n >= kLanes) return load_f16(p);
  f16 padded[kLanes] = {};
  memcpy(padded, p, static_cast<size_t>(n) * sizeof(f16));
  return load_f16(padded);
}

// Keys of positions [from, to) of the block at `start` to keys[d][position]. The other positions
// are zeros: nobody sees them, but their memory may never have been written.
void load_keys(const f16* k, int32_t dk, int64_t start, int64_t from, int64_t to, float* keys) {
  for (int32_t d = 0; d < dk; d += kLanes) {
    const int n = dk - d < kLanes ? dk - d : kLanes;
    for (int group = 0; group < kPositions; group += kLanes) {
      F32 m[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const int64_t position = start + group + i;
        const bool seen = position >= from && position < to;
        m[i] = seen ? load_f16_n(k + position * dk + d, n) : splat(0.0f);
      }
      transpose(m);
      for (int i = 0; i < n; ++i) store(keys + (d + i) * kPositions + group, m[i]);
    }
  }
}

// Values of positions [from, to) to values[position - start][ldv].
void load_values(const f16* v, int32_t dv, int64_t start, int64_t from, int64_t to, int32_t ldv,
                 float* values) {
  for (int64_t position = from; position < to; ++position) {
    const f16* in = v + position * dv;
    float* out = values + (position - start) * ldv;
    for (int32_t c = 0; c < dv; c += kLanes) store(out + c, load_f16_n(in + c, dv - c));
  }
}

// --- scores --------------------------------------------------------------------------------------
template <int kRows>
void score_tile(const float* q, int64_t q_stride, const float* keys, int32_t dk, float* p) {
  for (int first = 0; first < kPositions; first += kScoreVectors * kLanes) {
    F32 s[kRows][kScoreVectors];
    unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
      unroll<kScoreVectors>([&](auto j) SLUICE_INLINE_LAMBDA { s[r][j] = splat(0.0f); });
    });
    const float* key = keys + first;
    for (int32_t d = 0; d < dk; ++d, key += kPositions) {
      F32 x[kScoreVectors];
      unroll<kScoreVectors>([&](auto j) SLUICE_INLINE_LAMBDA { x[j] = load(key + j * kLanes); });
      unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
        const F32 qr = splat(q[r * q_stride + d]);
        unroll<kScoreVectors>([&](auto j)
                                  SLUICE_INLINE_LAMBDA { s[r][j] = mul_add(qr, x[j], s[r][j]); });
      });
    }
    unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
      unroll<kScoreVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
        store(p + r * kPositions + first + j * kLanes, s[r][j]);
      });
    });
  }
}

void score_rows(const float* q, int64_t q_stride, int n_rows, const float* keys, int32_t dk,
                float* p) {
  int r = 0;
  const auto tile = [&](auto rows) {
    for (; r + rows <= n_rows; r += rows) {
      score_tile<rows>(q + r * q_stride, q_stride, keys, dk, p + r * kPositions);
    }
  };
  tile(Int<kTileRows>{});
  if constexpr (kTileRows > 4) tile(Int<4>{});
  tile(Int<2>{});
  tile(Int<1>{});
}

// --- online softmax ------------------------------------------------------------------------------
constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// -inf in the lanes of positions outside [lo, hi).
SLUICE_INLINE F32 mask_scores(F32 s, int first, int lo, int hi) {
  const F32 position = load(kLaneNumbers) + splat(static_cast<float>(first));
  const F32 outside = splat(kNegativeInfinity);
  s = select(position < splat(static_cast<float>(lo)), outside, s);
  return select(position < splat(static_cast<float>(hi)), s, outside);
}

// Turns a row's scores into weights relative to the greatest so far, rescaling what it has summed
// when that has grown. Positions [lo, hi) of the block are the row's.
void softmax_row(const AttentionArgs& a, const AttentionState& state, int r, int lo, int hi) {
  float* p = state.p + r * kPositions;
  F32 s[kBlockVectors];
  F32 top = splat(kNegativeInfinity);
  const F32 factor = splat(a.scale);
  const bool whole = lo == 0 && hi == kPositions;
  unroll<kBlockVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
    s[j] = load(p + j * kLanes) * factor;
    if (a.softcap != 0.0f) s[j] = splat(a.softcap) * tanh(s[j] * splat(1.0f / a.softcap));
    if (!whole) s[j] = mask_scores(s[j], j * kLanes, lo, hi);
    top = max(s[j], top);
  });
  const float old_max = state.max[r];
  const float block_max = reduce_max(top);
  float* sum = state.sum + r * kLanes;
  F32 new_sum = load(sum);
  float new_max = old_max;
  if (block_max > old_max) {
    new_max = state.max[r] = block_max;
    const F32 keep = splat(exp_of(old_max - new_max));
    new_sum = new_sum * keep;
    float* acc = state.acc + r * state.ldv;
    for (int32_t c = 0; c < state.ldv; c += kLanes) store(acc + c, load(acc + c) * keep);
  }
  unroll<kBlockVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
    const F32 weight = exp(s[j] - splat(new_max));
    new_sum = new_sum + weight;
    store(p + j * kLanes, weight);
  });
  store(sum, new_sum);
}

// --- weighted values -----------------------------------------------------------------------------
// acc[r][c ..] += p[r][position] * values[position][c ..] over positions [lo, hi).
template <int kRows, int kVectors>
void value_tile(const float* p, int lo, int hi, const float* values, int32_t ldv, float* acc) {
  F32 sum[kRows][kVectors];
  unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
    unroll<kVectors>([&](auto j)
                         SLUICE_INLINE_LAMBDA { sum[r][j] = load(acc + r * ldv + j * kLanes); });
  });
  const float* value = values + lo * ldv;
  for (int i = lo; i < hi; ++i, value += ldv) {
    F32 x[kVectors];
    unroll<kVectors>([&](auto j) SLUICE_INLINE_LAMBDA { x[j] = load(value + j * kLanes); });
    unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
      const F32 weight = splat(p[r * kPositions + i]);
      unroll<kVectors>([&](auto j)
                           SLUICE_INLINE_LAMBDA { sum[r][j] = mul_add(weight, x[j], sum[r][j]); });
    });
  }
  unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
    unroll<kVectors>([&](auto j)
                         SLUICE_INLINE_LAMBDA { store(acc + r * ldv + j * kLanes, sum[r][j]); });
  });
}

template <int kRows>
void value_rows(const float* p, int lo, int hi, const float* values, int32_t ldv, float* acc) {
  if (lo >= hi) return;
  constexpr int kWide = kLanes == 16 || kRows == 1 ? 4 : 2;
  int32_t c = 0;
  for (; c + kWide * kLanes <= ldv; c += kWide * kLanes) {
    value_tile<kRows, kWide>(p, lo, hi, values + c, ldv, acc + c);
  }
  for (; c < ldv; c += kLanes) value_tile<kRows, 1>(p, lo, hi, values + c, ldv, acc + c);
}

struct Range {
  int lo, hi;  // positions of the block that a row sees
};

// Rows of a tile share the positions that all of them see; what a row sees before and after, it
// does alone. Positions that a row does not see are not multiplied by zero but left out, since
// they may hold infinities.
template <int kRows>
void value_group(const AttentionState& s, int r, const Range* range) {
  int lo = 0, hi = kPositions;
  for (int i = 0; i < kRows; ++i) {
    lo = range[r + i].lo > lo ? range[r + i].lo : lo;
    hi = range[r + i].hi < hi ? range[r + i].hi : hi;
  }
  float* const p = s.p + r * kPositions;
  float* const acc = s.acc + r * s.ldv;
  const auto alone = [&](int i, int from, int to) {
    from = range[r + i].lo > from ? range[r + i].lo : from;
    to = range[r + i].hi < to ? range[r + i].hi : to;
    value_rows<1>(p + i * kPositions, from, to, s.values, s.ldv, acc + i * s.ldv);
  };
  if (lo >= hi) {
    for (int i = 0; i < kRows; ++i) alone(i, 0, kPositions);
    return;
  }
  for (int i = 0; i < kRows; ++i) alone(i, 0, lo);
  value_rows<kRows>(p, lo, hi, s.values, s.ldv, acc);
  for (int i = 0; i < kRows; ++i) alone(i, hi, kPositions);
}

// --- splits --------------------------------------------------------------------------------------
// Adds one split's unnormalised result to the row's, both relative to their own maxima. The same
// chain in attention and in attention_merge, so that splitting changes no bit.
struct Folded {
  float max = kNegativeInfinity;
  float sum = 0;
};
Folded fold(Folded total, float part_max, float part_sum, const float* part, int32_t dv,
            float* out) {
  if (part_max == kNegativeInfinity) return total;
  const float max = part_max > total.max ? part_max : total.max;
  const float keep = exp_of(total.max - max);
  const float take = exp_of(part_max - max);
  const F32 k = splat(keep), t = splat(take);
  for (int32_t c = 0; c < dv; c += kLanes) {
    const int n = dv - c < kLanes ? dv - c : kLanes;
    store_n(out + c, mul_add(load_n(part + c, n), t, load_n(out + c, n) * k), n);
  }
  return {max, total.sum * keep + part_sum * take};
}

void normalise(float sum, int32_t dv, float* out) {
  const F32 factor = splat(sum > 0.0f ? 1.0f / sum : 0.0f);
  for (int32_t c = 0; c < dv; c += kLanes) {
    const int n = dv - c < kLanes ? dv - c : kLanes;
    store_n(out + c, load_n(out + c, n) * factor, n);
  }
}

void zero(float* x, int64_t n) {
  memset(x, 0, static_cast<size_t>(n) * sizeof(float));
}

// --- a panel of rows -----------------------------------------------------------------------------
struct Panel {
  int32_t row, n_rows;
  int64_t first, last;  // positions that any of its rows sees
};

void attend_block(const AttentionArgs& a, const AttentionState& s, const Panel& panel,
                  int64_t start) {
  const int64_t end = start + kPositions;
  const int64_t from = panel.first > start ? panel.first : start;
  const int64_t to = panel.last < end ? panel.last : end;
  load_keys(a.k, a.dk, start, from, to, s.keys);
  load_values(a.v, a.dv, start, from, to, s.ldv, s.values);

  Range range[kPanelRows];
  int first_row = panel.n_rows, last_row = 0;
  for (int r = 0; r < panel.n_rows; ++r) {
    const int64_t begin = a.begin[panel.row + r] - start;
    const int64_t stop = a.end[panel.row + r] - start;
    range[r].lo = begin > 0 ? (begin < kPositions ? static_cast<int>(begin) : kPositions) : 0;
    range[r].hi = stop < kPositions ? (stop > 0 ? static_cast<int>(stop) : 0) : kPositions;
    if (range[r].lo >= range[r].hi) continue;
    first_row = r < first_row ? r : first_row;
    last_row = r + 1;
  }
  if (first_row >= last_row) return;
  score_rows(a.q + (panel.row + first_row) * a.q_stride, a.q_stride, last_row - first_row, s.keys,
             a.dk, s.p + first_row * kPositions);
  for (int r = first_row; r < last_row; ++r) {
    if (range[r].lo < range[r].hi) softmax_row(a, s, r, range[r].lo, range[r].hi);
  }
  int r = first_row;
  for (; r + 4 <= last_row; r += 4) value_group<4>(s, r, range);
  for (; r + 2 <= last_row; r += 2) value_group<2>(s, r, range);
  for (; r < last_row; ++r) value_group<1>(s, r, range);
}

void attend_panel(const AttentionArgs& a, const AttentionState& s, const Panel& panel) {
  for (int r = 0; r < panel.n_rows; ++r) {
    s.total_max[r] = kNegativeInfinity;
    s.total_sum[r] = 0;
    zero(a.out + (panel.row + r) * a.out_stride, a.dv);
  }
  for (int64_t split = panel.first / kAttentionSplit * kAttentionSplit; split < panel.last;
       split += kAttentionSplit) {
    const int64_t end = split + kAttentionSplit < panel.last ? split + kAttentionSplit : panel.last;
    for (int r = 0; r < panel.n_rows; ++r) s.max[r] = kNegativeInfinity;
    zero(s.sum, int64_t{panel.n_rows} * kLanes);
    zero(s.acc, int64_t{panel.n_rows} * s.ldv);
    int64_t start = panel.first > split ? panel.first / kPositions * kPositions : split;
    for (; start < end; start += kPositions) attend_block(a, s, panel, start);
    for (int r = 0; r < panel.n_rows; ++r) {
      const Folded total =
          fold({s.total_max[r], s.total_sum[r]}, s.max[r], reduce_add(load(s.sum + r * kLanes)),
               s.acc + r * s.ldv, a.dv, a.out + (panel.row + r) * a.out_stride);
      s.total_max[r] = total.max;
      s.total_sum[r] = total.sum;
    }
  }
  for (int r = 0; r < panel.n_rows; ++r) {
    if (a.partial_max != nullptr && a.partial_sum != nullptr) {
      a.partial_max[panel.row + r] = s.total_max[r];
      a.partial_sum[panel.row + r] = s.total_sum[r];
    } else {
      normalise(s.total_sum[r], a.dv, a.out + (panel.row + r) * a.out_stride);
    }
  }
}

void attention(const AttentionArgs& a) {
  const AttentionState state = lay_out(a.scratch, a.dk, a.dv);
  for (int32_t row = 0; row < a.n_rows; row += kPanelRows) {
    Panel panel{row, a.n_rows - row < kPanelRows ? a.n_rows - row : kPanelRows, INT64_MAX, 0};
    for (int32_t r = row; r < row + panel.n_rows; ++r) {
      if (a.begin[r] >= a.end[r]) continue;
      if (a.begin[r] < panel.first) panel.first = a.begin[r];
      if (a.end[r] > panel.last) panel.last = a.end[r];
    }
    attend_panel(a, state, panel);
  }
}

void attention_merge(const float* partial, int64_t stride, const float* part_max,
                     const float* part_sum, int32_t n_parts, int32_t dv, float* out) {
  Folded total;
  zero(out, dv);
  for (int32_t i = 0; i < n_parts; ++i) {
    total = fold(total, part_max[i], part_sum[i], partial + i * stride, dv, out);
  }
  normalise(total.sum, dv, out);
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
