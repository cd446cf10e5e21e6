// Activations to int8: one pass for the maximum, one to round, one for the sums, 32 values at a
// time. Done once per matrix input, so it is written for clarity first.
#pragma once

#include "kernels/generic/unroll.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

inline constexpr int kActValues = 32;

SLUICE_INLINE void put_values(ActBlock8& b, const int32_t* q) {
  for (int i = 0; i < kActValues; ++i) b.q[i] = static_cast<int8_t>(q[i]);
}
SLUICE_INLINE void put_pairs(int16_t* q16, const int32_t* q) {
  for (int i = 0; i < kActValues; i += 4) {
    q16[i] = static_cast<int16_t>(q[i]);
    q16[i + 1] = static_cast<int16_t>(q[i + 2]);
    q16[i + 2] = static_cast<int16_t>(q[i + 1]);
    q16[i + 3] = static_cast<int16_t>(q[i + 3]);
  }
}
SLUICE_INLINE void put_values(ActBlock16& b, const int32_t* q) {
  put_pairs(b.q16, q);
}
SLUICE_INLINE void put_values(ActBlockBoth& b, const int32_t* q) {
  for (int i = 0; i < kActValues; ++i) b.q[i] = static_cast<int8_t>(q[i]);
  put_pairs(b.q16, q);
}

// x points at 32 values.
SLUICE_INLINE void quantize_block(const float* x, ActBlock& out) {
  F32 peak = splat(0.0f);
  for (int i = 0; i < kActValues; i += kLanes) peak = max(abs(load(x + i)), peak);
  const float largest = reduce_max(peak);
  // Below this the inverse overflows, and such values are nothing beside any weight.
  const float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
  int32_t q[kActValues];
  for (int i = 0; i < kActValues; i += kLanes) {
    store(q + i, round_i32(load(x + i) * splat(inverse)));
  }
  int32_t sum[2] = {0, 0};
  for (int i = 0; i < kActValues / 2; ++i) {
    sum[0] += q[i];
    sum[1] += q[i + kActValues / 2];
  }
  put_values(out, q);
  out.m.d = largest / 127.0f;
  out.m.nsum16[0] = -sum[0];
  out.m.nsum16[1] = -sum[1];
  out.m.nsum = -(sum[0] + sum[1]);
  out.m.dsum16[0] = out.m.d * static_cast<float>(sum[0]);
  out.m.dsum16[1] = out.m.d * static_cast<float>(sum[1]);
  out.m.dsum = out.m.d * static_cast<float>(sum[0] + sum[1]);
  out.m.unused = 0;
}

size_t q8_bytes(int64_t cols) {
  const size_t blocks = static_cast<size_t>((cols + kActValues - 1) / kActValues);
  return (blocks * sizeof(ActBlock) + 63) / 64 * 64;
}

void quantize_q8(const float* x, int64_t cols, void* out) {
  ActBlock* blocks = static_cast<ActBlock*>(out);
  int64_t c = 0;
  for (; c + kActValues <= cols; c += kActValues) quantize_block(x + c, *blocks++);
  if (c < cols) {
    float padded[kActValues] = {};
    for (int64_t i = c; i < cols; ++i) padded[i - c] = x[i];
    quantize_block(padded, *blocks);
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
