// Activations to int8, 32 values at a time, rounded to nearest. The largest value maps to one of
// 127 to 120, whichever leaves the smallest squared error, and the scale is then the least-squares
// one for the integers found: together that takes a fifth off the error of always mapping it to
// 127, at a cost that is lost beside the product.
#pragma once

#include "kernels/generic/unroll.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

inline constexpr int kActValues = 32;
inline constexpr int kActSuper = 8;  // blocks whose sums share a scale

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

// Squared error of rounding 32 values with the largest mapped to `top`.
SLUICE_INLINE float rounding_error(const float* x, float largest, float top) {
  const F32 inverse = splat(top / largest);
  const F32 scale = splat(largest / top);
  F32 sum = splat(0.0f);
  for (int i = 0; i < kActValues; i += kLanes) {
    const F32 value = load(x + i);
    const F32 e = neg_mul_add(to_f32(round_i32(value * inverse)), scale, value);
    sum = mul_add(e, e, sum);
  }
  return reduce_add(sum);
}

// x points at 32 values.
SLUICE_INLINE void quantize_block(const float* x, ActBlock& out) {
  F32 peak = splat(0.0f);
  for (int i = 0; i < kActValues; i += kLanes) peak = max(abs(load(x + i)), peak);
  const float largest = reduce_max(peak);
  // Below this the inverse overflows, and such values are nothing beside any weight.
  const bool visible = largest > 1e-30f;
  float top = 127.0f;
  if (visible) {
    float least = rounding_error(x, largest, top);
    for (float candidate = 126.0f; candidate > 119.0f; candidate -= 1.0f) {
      const float error = rounding_error(x, largest, candidate);
      if (error < least) {
        least = error;
        top = candidate;
      }
    }
  }
  const F32 inverse = splat(visible ? top / largest : 0.0f);
  int32_t q[kActValues];
  F32 xq = splat(0.0f), qq = splat(0.0f);
  for (int i = 0; i < kActValues; i += kLanes) {
    const F32 value = load(x + i);
    const auto rounded = round_i32(value * inverse);
    const F32 back = to_f32(rounded);
    xq = mul_add(value, back, xq);
    qq = mul_add(back, back, qq);
    store(q + i, rounded);
  }
  put_values(out, q);
  out.m.d = visible ? reduce_add(xq) / reduce_add(qq) : 0.0f;
  out.m.nsum = 0;
  for (int h = 0; h < 2; ++h) {
    int32_t sum01 = 0, sum23 = 0;
    for (int i = kActValues / 2 * h; i < kActValues / 2 * (h + 1); i += 4) {
      sum01 += q[i] + q[i + 1];
      sum23 += q[i + 2] + q[i + 3];
    }
    out.m.nsum16[h] = half_word(-sum01, -sum23);
    out.m.dsum16[h] = out.m.d * static_cast<float>(sum01 + sum23);
    out.m.nsum -= sum01 + sum23;
  }
  out.m.dsum = out.m.d * static_cast<float>(-out.m.nsum);
  out.m.super = 0;
}

// The sums of 256 values for products with integer minimums: in 16 bits, rounded to nearest, which
// adds a hundredth of what rounding the values themselves has cost.
SLUICE_INLINE void put_super_sums(ActBlock* blocks) {
  float largest = 0.0f;
  for (int b = 0; b < kActSuper; ++b) {
    const float size = __builtin_fabsf(blocks[b].m.dsum);
    largest = size > largest ? size : largest;
  }
  if (!(largest > 1e-30f)) return;
  const float inverse = 32767.0f / largest;
  uint32_t sums[kActSuper];
  for (int b = 0; b < kActSuper; ++b) {
    const float scaled = blocks[b].m.dsum * inverse;
    sums[b] = static_cast<uint32_t>(static_cast<int32_t>(scaled + (scaled < 0 ? -0.5f : 0.5f)));
  }
  for (int b = 0; b < kActSuper / 2; ++b) {
    blocks[b].m.super = static_cast<int32_t>((sums[2 * b] & 0xffff) | sums[2 * b + 1] << 16);
  }
  const float scale = largest / 32767.0f;
  memcpy(&blocks[kActSuper / 2].m.super, &scale, sizeof scale);
}

size_t q8_bytes(int64_t cols) {
  const size_t blocks = static_cast<size_t>((cols + kActValues - 1) / kActValues);
  return (blocks * sizeof(ActBlock) + 63) / 64 * 64;
}

void quantize_q8(const float* x, int64_t cols, void* out) {
  ActBlock* blocks = static_cast<ActBlock*>(out);
  int64_t c = 0;
  for (; c + kActValues <= cols; c += kActValues) {
    quantize_block(x + c, *blocks++);
    if ((c / kActValues + 1) % kActSuper == 0) put_super_sums(blocks - kActSuper);
  }
  if (c < cols) {
    float padded[kActValues] = {};
    for (int64_t i = c; i < cols; ++i) padded[i - c] = x[i];
    quantize_block(padded, *blocks);
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
