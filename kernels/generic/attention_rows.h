// Scores and weighted values of a block of positions in f16 or f32, in register tiles: a row's
// chain over components and positions is the same whichever rows pass beside it.
#pragma once

#include "kernels/generic/unroll.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kPositions = 32;  // of a block; whole vectors on every target
// Register tiles are rows x positions (scores) and rows x vectors (values): with the operands they
// fill 32 registers, or 16.
constexpr int kTileSize = kLanes == 16 ? 16 : 8;
constexpr int kDirectRows = kLanes > 4 ? 8 : 2;

// --- a block's keys and values -------------------------------------------------------------------
// Rows of a block's positions, in the cache's f16 or converted: row i at data + i * ld. Only rows
// [from, to) may be read: the others may never have been written, or not exist.
template <class T>
struct Rows {
  const T* data;
  int64_t ld;
  int from, to;
};

SLUICE_INLINE F32 load_any(const float* p) {
  return load(p);
}
SLUICE_INLINE F32 load_any(const f16* p) {
  return load_f16(p);
}

// Asks for n values of the same row of the next block while this one is worked on: hardware
// prefetchers lose the thread between blocks, once there is more to do with one than to read it.
// Past the last block it asks for nothing useful.
constexpr int kPrefetchRows = 4;
SLUICE_INLINE void prefetch_next(const float*, int64_t, int) {}
SLUICE_INLINE void prefetch_next(const f16* p, int64_t ld, int n) {
  for (int i = 0; i < n; i += 32) prefetch(p + kPositions * ld + i);
}

// The first n values of p and zeros.
SLUICE_INLINE F32 load_f16_n(const f16* p, int n) {
  if (n >= kLanes) return load_f16(p);
  f16 padded[kLanes] = {};
  memcpy(padded, p, static_cast<size_t>(n) * sizeof(f16));
  return load_f16(padded);
}

SLUICE_NOINLINE Rows<float> convert(const Rows<f16>& in, int32_t cols, int32_t ld, float* out) {
  for (int i = in.from; i < in.to; ++i) {
    for (int32_t c = 0; c < cols; c += kLanes) {
      store(out + i * ld + c, load_f16_n(in.data + i * in.ld + c, cols - c));
    }
  }
  return {out, ld, in.from, in.to};
}

// --- scores --------------------------------------------------------------------------------------
struct Queries {
  const float* data;
  int64_t ld;
  int32_t size;  // multiple of lanes
};

// Scores of kRows queries with the positions first .. first + kCount of a block. Positions that
// may not be read are computed from the nearest one that may; their scores are masked later.
template <int kRows, int kCount, class T>
SLUICE_INLINE void score_tile(const Queries& q, const Rows<T>& keys, int first, bool ahead,
                              float* p) {
  constexpr int kStep = kCount < 4 ? kCount : 4;  // positions side by side: pointers are registers
  F32 s[kRows * kCount];
  unroll<kRows * kCount>([&](auto i) SLUICE_INLINE_LAMBDA { s[i] = splat(0.0f); });
  unroll<kCount / kStep>([&](auto step) SLUICE_INLINE_LAMBDA {
    const T* key[kStep];
    unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA {
      int i = first + step * kStep + j;
      i = i < keys.from ? keys.from : i;
      i = i < keys.to ? i : keys.to - 1;
      key[j] = keys.data + i * keys.ld;
    });
    if (ahead) {
      unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA { prefetch_next(key[j], keys.ld, q.size); });
    }
    for (int32_t d = 0; d < q.size; d += kLanes) {
      F32 x[kStep];
      unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA { x[j] = load_any(key[j] + d); });
      unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
        const F32 qr = load(q.data + r * q.ld + d);
        unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA {
          constexpr int kIndex = r * kCount + step * kStep + j;
          s[kIndex] = mul_add(qr, x[j], s[kIndex]);
        });
      });
    }
  });
  // Sums of kLanes vectors at a time, [row][position] in order.
  float sums[kRows * kCount];
  unroll<kRows * kCount / kLanes>([&](auto i) SLUICE_INLINE_LAMBDA {
    F32 m[kLanes];
    unroll<kLanes>([&](auto j) SLUICE_INLINE_LAMBDA { m[j] = s[i * kLanes + j]; });
    store(sums + i * kLanes, reduce_add_each(m));
  });
  unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
    memcpy(p + r * kPositions + first, sums + r * kCount, kCount * sizeof(float));
  });
}

template <int kRows, class T>
SLUICE_NOINLINE void score_strip(const Queries& q, const Rows<T>& keys, bool ahead, float* p) {
  constexpr int kCount = kTileSize / kRows > kLanes ? kLanes : kTileSize / kRows;
  for (int i = keys.from / kCount * kCount; i < keys.to; i += kCount) {
    score_tile<kRows, kCount>(q, keys, i, ahead, p);
  }
}

// Tiles of 1, 2, 4 .. rows are called through tables. Were they inlined into one function, which
// compilers and wasm-opt love to do, they would spill each other's registers: V8 allocates those
// of a whole function at once, and that costs it a third of the speed.
template <class T>
struct ScoreStrips {
  static constexpr int kMaxLog2 = kTileSize == 16 ? 2 : 1;
  using Strip = void (*)(const Queries&, const Rows<T>&, bool, float*);
  template <int kLog2>
  static constexpr Strip strip() {
    if constexpr (kLog2 <= kMaxLog2) return score_strip<1 << kLog2, T>;
    return nullptr;
  }
  static constexpr Strip kStrips[3] = {strip<0>(), strip<1>(), strip<2>()};
};

// The tallest tile of at most n_rows.
int tile_log2(int n_rows, int max_log2) {
  int i = 0;
  while (i < max_log2 && 2 << i <= n_rows) ++i;
  return i;
}

template <class T>
void score_rows(Queries q, int n_rows, const Rows<T>& keys, float* p) {
  bool ahead = n_rows >= kPrefetchRows;
  while (n_rows > 0) {
    const int i = tile_log2(n_rows, ScoreStrips<T>::kMaxLog2);
    ScoreStrips<T>::kStrips[i](q, keys, ahead, p);
    ahead = false;
    q.data += q.ld << i;
    p += kPositions << i;
    n_rows -= 1 << i;
  }
}

// --- weighted values -----------------------------------------------------------------------------
// acc[r][c ..] += p[r][position] * values[position][c ..] over positions [lo, hi).
template <int kRows, int kVectors, class T>
SLUICE_INLINE void value_tile(const float* p, int lo, int hi, const Rows<T>& values, int32_t c,
                              int32_t ldv, float* acc) {
  F32 sum[kRows][kVectors];
  acc += c;
  unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
    unroll<kVectors>([&](auto j)
                         SLUICE_INLINE_LAMBDA { sum[r][j] = load(acc + r * ldv + j * kLanes); });
  });
  const T* value = values.data + lo * values.ld + c;
  for (int i = lo; i < hi; ++i, value += values.ld) {
    if constexpr (kRows >= kPrefetchRows) prefetch_next(value, values.ld, kVectors * kLanes);
    F32 x[kVectors];
    unroll<kVectors>([&](auto j) SLUICE_INLINE_LAMBDA { x[j] = load_any(value + j * kLanes); });
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

template <int kRows, class T>
SLUICE_NOINLINE void value_rows(const float* p, int lo, int hi, const Rows<T>& values, int32_t ldv,
                                float* acc) {
  constexpr int kWide = kTileSize / kRows > 8 ? 8 : kTileSize / kRows;
  int32_t c = 0;
  for (; c + kWide * kLanes <= ldv; c += kWide * kLanes) {
    value_tile<kRows, kWide>(p, lo, hi, values, c, ldv, acc);
  }
  for (; c < ldv; c += kLanes) value_tile<kRows, 1>(p, lo, hi, values, c, ldv, acc);
}

template <class T>
struct ValueStrips {
  static constexpr int kMaxLog2 = 2;
  using Strip = void (*)(const float*, int, int, const Rows<T>&, int32_t, float*);
  template <int kLog2>
  static constexpr Strip strip() {
    if constexpr (kLog2 <= kMaxLog2) return value_rows<1 << kLog2, T>;
    return nullptr;
  }
  static constexpr Strip kStrips[3] = {strip<0>(), strip<1>(), strip<2>()};
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
