// Scores with 4-bit keys, in integers. Keys of sixteen positions are interleaved (layout in
// kernels.h): a vector holds four channels of several positions, as packed weights hold four
// columns of several rows. A query row is quantized once for all positions and takes the place of a
// token. So the dot product is the one of weights (subblock.h), no sum crosses lanes, and scores
// come out in position order. Sums over 32 channels are exact. The rest is one chain over the
// blocks of a row, independent of which rows and positions are computed together.
#pragma once

#include "kernels/generic/kv_rows.h"
#include "kernels/generic/quantize_acts.h"
#include "kernels/generic/subblock.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kLaneBlock = kKvRun * 18;  // bytes of 32 channels of a run

// Levels shifted to 1..127, the range that every target's dot product handles exactly.
struct LevelCodes {
  const uint8_t* codes;
  SLUICE_INLINE_METHOD Bytes operator()(int v, int j) const {
    const Bytes raw = load_bytes(codes + 4 * kKvRun * (j % 4) + 4 * kLanes * v);
    return lookup16(kLifted4.level, j < 4 ? bits<0, 15>(raw) : bits<4, 15>(raw));
  }
};

// Scores of T rows with the positions of all runs that overlap [from, to), NV vectors of positions
// at a time.
template <int T, int NV>
SLUICE_NOINLINE void score_lanes(const Queries& q, const Rows& keys, bool ahead, float* p) {
  const int32_t n_blocks = static_cast<int32_t>(keys.stride / kLaneBlock);
  for (int at = keys.from / kKvRun * kKvRun; at < keys.to; at += NV * kLanes) {
    const uint8_t* block = keys.data + at / kKvRun * keys.stride;
    const int lane = at % kKvRun;
    Tokens x = {q.q8, q.q8_stride};
    F32 acc[NV][T];
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      SLUICE_UNROLL for (int t = 0; t < T; ++t) acc[v][t] = splat(0.0f);
    }
    SLUICE_NO_UNROLL for (int32_t b = 0; b < n_blocks; ++b) {
      if (ahead && lane == 0) {
        SLUICE_UNROLL for (int i = 0; i < kLaneBlock; i += 64) {
          prefetch(block + kPositions / kKvRun * keys.stride + i);
        }
      }
      I32 sums[NV][T];
      dot_codes<NV, T, 127, 0, 8, 6, true>(x, 0, LevelCodes{block + 2 * kKvRun + 4 * lane}, sums);
      F32 scales[NV];
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
        scales[v] = load_bf16(block + 2 * (lane + kLanes * v));
      }
      accumulate(x, 0, sums, scales, acc);
      block += kLaneBlock;
      x.base += sizeof(ActBlock);
    }
    SLUICE_UNROLL for (int t = 0; t < T; ++t) {
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
        store(p + t * kPositions + at + kLanes * v, acc[v][t]);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
