// Quantizes activations to int8, 32 values at a time, rounded to nearest. The largest value maps to
// one of 127 to 120, whichever leaves the smallest squared error. The scale is then the
// least-squares one for the integers found. Compared with always mapping to 127, the error is a
// fifth smaller, for a twentieth of a prompt's time in the browser.
#pragma once

#include "kernels/generic/unroll.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

inline constexpr int kActSuper = 8;  // blocks whose sums share a scale

constexpr int kActVectors = kActValues / kLanes;

// Squared error of rounding 32 values with the largest mapped to `top`.
SLUICE_INLINE float rounding_error(const F32 (&x)[kActVectors], float largest, float top) {
  const F32 inverse = splat(top / largest);
  const F32 scale = splat(largest / top);
  F32 sum[2] = {splat(0.0f), splat(0.0f)};  // two accumulators: one would be a chain of latencies
  SLUICE_UNROLL for (int i = 0; i < kActVectors; ++i) {
    const F32 e = neg_mul_add(round(x[i] * inverse), scale, x[i]);
    sum[i % 2] = mul_add(e, e, sum[i % 2]);
  }
  return reduce_add(sum[0] + sum[1]);
}

// Quantizes the 32 values at `values`.
SLUICE_INLINE void quantize_block(const float* values, ActBlock& out) {
  F32 x[kActVectors], peak = splat(0.0f);
  SLUICE_UNROLL for (int i = 0; i < kActVectors; ++i) {
    x[i] = load(values + i * kLanes);
    peak = max(abs(x[i]), peak);
  }
  const float largest = reduce_max(peak);
  // Below this the inverse overflows, and such values are negligible beside any weight.
  const bool visible = largest > 1e-30f;
  float top = 127.0f;
  if (visible) {
    // All errors are computed before any comparison: the smallest is not predictable.
    float errors[8];
    SLUICE_UNROLL for (int i = 0; i < 8; ++i) {
      errors[i] = rounding_error(x, largest, 127.0f - static_cast<float>(i));
    }
    float least = errors[0];
    SLUICE_UNROLL for (int i = 1; i < 8; ++i) {
      if (errors[i] < least) top = 127.0f - static_cast<float>(i);
      least = errors[i] < least ? errors[i] : least;
    }
  }
  const F32 inverse = splat(visible ? top / largest : 0.0f);
  F32 xq = splat(0.0f), qq = splat(0.0f);
  I32 q[kActVectors];
  SLUICE_UNROLL for (int i = 0; i < kActVectors; ++i) {
    q[i] = round_i32(x[i] * inverse);
    const F32 back = to_f32(q[i]);
    xq = mul_add(x[i], back, xq);
    qq = mul_add(back, back, qq);
  }
  int32_t sums[2][2];
  put_values(q, out, sums);
  out.m.d = visible ? reduce_add(xq) / reduce_add(qq) : 0.0f;
  out.m.nsum = 0;
  for (int h = 0; h < 2; ++h) {
    const int32_t sum = sums[h][0] + sums[h][1];
    out.m.nsum16[h] = half_word(-sums[h][0], -sums[h][1]);
    out.m.dsum16[h] = out.m.d * static_cast<float>(sum);
    out.m.nsum -= sum;
  }
  out.m.dsum = out.m.d * static_cast<float>(-out.m.nsum);
  out.m.super = 0;
}

// The sums of 256 values in 16 bits, rounded to nearest, for multiplying with integer minimums. The
// rounding adds a hundredth of the error of rounding the values themselves.
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

// Interleaves the values of kActTile tokens in place: dword j of each token side by side.
template <class Block>
SLUICE_INLINE void tile_values(Block* (&tokens)[kActTile]) {
  if constexpr (kTiledActs) {
    uint32_t quads[kActValues / 4][kActTile];
    for (int t = 0; t < kActTile; ++t) {
      for (int j = 0; j < kActValues / 4; ++j) memcpy(&quads[j][t], tokens[t]->q + 4 * j, 4);
    }
    for (int t = 0; t < kActTile; ++t) memcpy(tokens[t]->q, quads[2 * t], kActValues);
  }
}

void quantize_token(const float* x, int64_t cols, void* out) {
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

void quantize_q8(const float* x, int64_t ld, int64_t cols, int32_t n_tokens, void* out) {
  const size_t stride = q8_bytes(cols);
  uint8_t* token = static_cast<uint8_t*>(out);
  ActBlock* tile[kActTile];
  for (int32_t t = 0; t < n_tokens; ++t) {
    quantize_token(x + t * ld, cols, token);
    tile[t % kActTile] = reinterpret_cast<ActBlock*>(token);
    token += stride;
    if (!kTiledActs || (t + 1) % kActTile != 0) continue;
    for (int64_t c = 0; c < cols; c += kActValues) {
      tile_values(tile);
      for (ActBlock*& blocks : tile) ++blocks;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
