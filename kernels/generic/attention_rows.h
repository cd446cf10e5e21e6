// Register tiles of attention over a block of positions: scores of a few query rows with several
// keys, and sums of values by their weights. A tile loads the KV cache in any layout; its
// arithmetic is the same for all of them.
#pragma once

#include <type_traits>

#include "kernels/generic/key_lanes.h"
#include "kernels/generic/unroll.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// Register tiles are rows x positions (scores) and rows x vectors (values). With the operands they
// fill 32 registers, or 16.
constexpr int kTileSize = kLanes == 16 ? 16 : 8;

// Whether tiles load rows of q8_0 and q2. With few lanes, decoding is so slow that going through
// scratch adds little, and on wasm every tile is code to download.
#if defined(SLUICE_WIDE_LANES)
constexpr bool kLoadsQuantized = true;
#else
constexpr bool kLoadsQuantized = false;
#endif

// The same for values of q4_0, which narrow vectors decode in fewer steps.
#if defined(__wasm__)
constexpr bool kLoadsFourBits = false;
#else
constexpr bool kLoadsFourBits = true;
#endif

// Prefetches `bytes` of the same row of the next block. Hardware prefetchers lose track between
// blocks when a block is more work than reading it. Past the last block this has no effect.
constexpr int kPrefetchRows = 4;
template <class T>
SLUICE_INLINE void prefetch_next(const uint8_t* p, int64_t stride, int bytes) {
  if constexpr (std::is_same_v<T, F32Rows>) return;
  for (int i = 0; i < bytes; i += 64) prefetch(p + kPositions * stride + i);
}

// --- scores --------------------------------------------------------------------------------------
// Scores of kRows queries with the positions first .. first + kCount of a block. Unreadable
// positions use the nearest readable one; their scores are masked later.
template <class T, int kRows, int kCount>
SLUICE_INLINE void score_tile(const Queries& q, const Rows& keys, int first, bool ahead, float* p) {
  constexpr int kStep = kCount < 4 ? kCount : 4;  // positions at a time: a pointer each
  F32 s[kRows * kCount];
  unroll<kRows * kCount>([&](auto i) SLUICE_INLINE_LAMBDA { s[i] = splat(0.0f); });
  unroll<kCount / kStep>([&](auto step) SLUICE_INLINE_LAMBDA {
    const uint8_t* key[kStep];
    unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA {
      int i = first + step * kStep + j;
      i = i < keys.from ? keys.from : i;
      i = i < keys.to ? i : keys.to - 1;
      key[j] = keys.data + i * keys.stride;
    });
    if (ahead) {
      const int bytes = q.size / (T::kUnit * kLanes) * T::kBytes;
      unroll<kStep>([&](auto j)
                        SLUICE_INLINE_LAMBDA { prefetch_next<T>(key[j], keys.stride, bytes); });
    }
    int32_t at = 0;
    for (int32_t d = 0; d < q.size; d += T::kUnit * kLanes, at += T::kBytes) {
      unroll<T::kUnit>([&](auto part) SLUICE_INLINE_LAMBDA {
        const typename T::Channels channels(keys, d + part * kLanes);
        F32 x[kStep];
        unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA {
          x[j] = T::template load_part<part>(key[j] + at, channels);
        });
        unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
          const F32 qr = load(q.data + r * q.ld + d + part * kLanes);
          unroll<kStep>([&](auto j) SLUICE_INLINE_LAMBDA {
            constexpr int kIndex = r * kCount + step * kStep + j;
            s[kIndex] = mul_add(qr, x[j], s[kIndex]);
          });
        });
      });
    }
  });
  // Sums kLanes vectors at a time, in [row][position] order.
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

template <class T, int kRows>
SLUICE_NOINLINE void score_strip(const Queries& q, const Rows& keys, bool ahead, float* p) {
  constexpr int kCount = kTileSize / kRows > kLanes ? kLanes : kTileSize / kRows;
  for (int i = keys.from / kCount * kCount; i < keys.to; i += kCount) {
    score_tile<T, kRows, kCount>(q, keys, i, ahead, p);
  }
}

// --- weighted values -----------------------------------------------------------------------------
// acc[r][c ..] += p[r][position] * values[position][c ..] over positions [lo, hi), for kVectors
// vectors from vector kFirst of the unit at column c.
template <class T, int kRows, int kVectors, int kFirst>
SLUICE_INLINE void value_tile(const float* p, int lo, int hi, const Rows& values, int32_t c,
                              int32_t ldv, float* acc) {
  F32 sum[kRows][kVectors];
  acc += c + kFirst * kLanes;
  unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
    unroll<kVectors>([&](auto j)
                         SLUICE_INLINE_LAMBDA { sum[r][j] = load(acc + r * ldv + j * kLanes); });
  });
  const typename T::Channels none(values, c);
  const uint8_t* value = values.data + lo * values.stride + c / (T::kUnit * kLanes) * T::kBytes;
  for (int i = lo; i < hi; ++i, value += values.stride) {
    if constexpr (kRows >= kPrefetchRows) {
      prefetch_next<T>(value, values.stride, kVectors * T::kBytes / T::kUnit);
    }
    F32 x[kVectors];
    unroll<kVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
      constexpr int kAt = kFirst + j;
      x[j] = T::template load_part<kAt % T::kUnit>(value + kAt / T::kUnit * T::kBytes, none);
    });
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

template <class T, int kRows>
SLUICE_NOINLINE void value_strip(const float* p, int lo, int hi, const Rows& values, int32_t ldv,
                                 float* acc) {
  constexpr int kWide = kTileSize / kRows > 8 ? 8 : kTileSize / kRows;
  constexpr int kUnit = T::kUnit;
  int32_t c = 0;
  if constexpr (kWide > kUnit) {
    for (; c + kWide * kLanes <= ldv; c += kWide * kLanes) {
      value_tile<T, kRows, kWide, 0>(p, lo, hi, values, c, ldv, acc);
    }
  }
  constexpr int kVectors = kWide < kUnit ? kWide : kUnit;
  for (; c < ldv; c += kUnit * kLanes) {
    unroll<kUnit / kVectors>([&](auto i) SLUICE_INLINE_LAMBDA {
      value_tile<T, kRows, kVectors, i * kVectors>(p, lo, hi, values, c, ldv, acc);
    });
  }
}

// --- tables --------------------------------------------------------------------------------------
// Tiles of 1, 2, 4 .. rows are called through tables. Compilers and wasm-opt would inline them into
// one function. V8 allocates registers for a whole function at once, so tiles would spill each
// other's registers, and V8 would lose a third of the speed.
using ScoreStrip = void (*)(const Queries&, const Rows&, bool, float*);
using ValueStrip = void (*)(const float*, int, int, const Rows&, int32_t, float*);
constexpr int kScoreLog2 = kTileSize == 16 ? 2 : 1, kValueLog2 = 2;

template <class T>
struct Strips {
  template <int kLog2>
  static constexpr ScoreStrip score() {
    if constexpr (kLog2 <= kScoreLog2) return score_strip<T, 1 << kLog2>;
    return nullptr;
  }
  static constexpr ScoreStrip kScores[3] = {score<0>(), score<1>(), score<2>()};
  // Four lanes take quantized rows one or two at a time (kQuantizedRows).
  static constexpr ValueStrip tall() {
    if constexpr (kLanes > 4 || !std::is_same_v<T, Q4Rows>) return value_strip<T, 4>;
    return nullptr;
  }
  static constexpr ValueStrip kValues[3] = {value_strip<T, 1>, value_strip<T, 2>, tall()};
};

const ScoreStrip* score_strips(Form form) {
#if defined(SLUICE_WIDE_LANES)
  if (form == Form::kQ8) return Strips<Q8Rows>::kScores;
  if (form == Form::kQ2Channels) return Strips<Q2ChannelRows>::kScores;
#endif
  return form == Form::kF16 ? Strips<F16Rows>::kScores : Strips<F32Rows>::kScores;
}
const ValueStrip* value_strips(Form form) {
#if defined(SLUICE_WIDE_LANES)
  if (form == Form::kQ8) return Strips<Q8Rows>::kValues;
  if (form == Form::kQ2) return Strips<Q2Rows>::kValues;
#endif
#if !defined(__wasm__)
  if (form == Form::kQ4) return Strips<Q4Rows>::kValues;
#endif
  return form == Form::kF16 ? Strips<F16Rows>::kValues : Strips<F32Rows>::kValues;
}

// Whether tiles can load rows of `cols` values directly: they must be whole units.
bool tiles_load(Form form, int32_t cols) {
  switch (form) {
    case Form::kF32:
    case Form::kQ4Lanes:
      return true;
    case Form::kF16:
      return cols % kLanes == 0;
    case Form::kQ4:
      return kLoadsFourBits && cols % kKvBlock == 0;
    case Form::kQ8:
      return kLoadsQuantized && cols % kKvBlock == 0;
    case Form::kQ2:
    case Form::kQ2Channels:
      return kLoadsQuantized && cols % (2 * kKvBlock) == 0;
  }
  return false;
}

// Rows that share keys in lanes, and vectors of positions that share a load of queries; registers
// limit both. With kTiledActs a tile of four would expect interleaved activations, which queries
// are not, so rows go by twos.
constexpr int kLaneRowsLog2 = kLanes == 16 ? 3 : kLanes == 8 ? 2 : 1;
constexpr int kLaneVectors = kLanes == 16 ? 1 : 2;
constexpr ScoreStrip kLaneScores[4] = {
    score_lanes < 1,   kLoadsFourBits ? kLaneVectors : 1 >, score_lanes<2, kLaneVectors>,
#if defined(SLUICE_WIDE_LANES)
    score_lanes<4, 1>, score_lanes<1 << kLaneRowsLog2, 1>,
#endif
};

// The tallest tile with at most n_rows rows.
int tile_log2(int n_rows, int max_log2) {
  int i = 0;
  while (i < max_log2 && 2 << i <= n_rows) ++i;
  return i;
}

void score_rows(Queries q, int n_rows, const Rows& keys, float* p) {
  const bool lanes = keys.form == Form::kQ4Lanes;
  const ScoreStrip* const strips = lanes ? kLaneScores : score_strips(keys.form);
  bool ahead = n_rows >= kPrefetchRows;
  while (n_rows > 0) {
    const int i = tile_log2(n_rows, lanes ? kLaneRowsLog2 : kScoreLog2);
    strips[i](q, keys, ahead, p);
    ahead = false;
    q = q.from(1 << i);
    p += kPositions << i;
    n_rows -= 1 << i;
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
