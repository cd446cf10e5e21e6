// Quantized keys and values back to f32, a block of positions at a time: what each bit means is in
// kernels.h. Every value is one fixed chain of operations of its code and scale.
#pragma once

#include "kernels/generic/unroll.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kKvBlock = 32;  // values that share a scale

SLUICE_INLINE float bf16_value(const uint8_t* p) {
  uint16_t high;
  memcpy(&high, p, sizeof high);
  const uint32_t bits = static_cast<uint32_t>(high) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// How codes of few bits become levels, and values levels: u + c u^3 of u = code - kMiddle.
struct Levels4 {
  static constexpr int kCodes = 16;
  static constexpr float kMiddle = 7.5f, kCurve = kKvCurve4;
  // The curve's inverse between the middles of neighbouring levels, by least squares.
  static SLUICE_INLINE_METHOD F32 flatten(F32 y) {
    const F32 y2 = y * y;
    const F32 outer = mul_add(y2, splat(1.88775938e-5f), splat(-4.46482060e-3f));
    return y * mul_add(y2, outer, splat(9.70276618e-1f));
  }
};
struct Levels2 {
  static constexpr int kCodes = 4;
  static constexpr float kMiddle = 1.5f, kCurve = kKvCurve2;
  static SLUICE_INLINE_METHOD F32
  flatten(F32 y) {  // their one boundary to each side is where u is 1
    return y * splat(1.0f / (1.0f + 1.75f * kKvCurve2));
  }
};
template <class L>
SLUICE_INLINE F32 level(F32 u) {
  return u * mul_add(u * u, splat(L::kCurve), splat(1.0f));
}

SLUICE_NOINLINE void widen_q8(const uint8_t* rows, int64_t row_bytes, int from, int to, int32_t ld,
                              float* out) {
  for (int i = from; i < to; ++i) {
    const uint8_t* block = rows + i * row_bytes;
    float* to_row = out + i * ld;
    for (int32_t c = 0; c < ld; c += kKvBlock, block += 34) {
      const F32 d = splat(bf16_value(block));
      unroll<kKvBlock / kLanes>([&](auto j) SLUICE_INLINE_LAMBDA {
        const int32_t at = c + j * kLanes;
        if (at < ld) store(to_row + at, load_s8(block + 2 + j * kLanes) * d);
      });
    }
  }
}

SLUICE_NOINLINE void widen_q4(const uint8_t* rows, int64_t row_bytes, int from, int to, int32_t ld,
                              float* out) {
  const F32 middle = splat(Levels4::kMiddle);
  for (int i = from; i < to; ++i) {
    const uint8_t* block = rows + i * row_bytes;
    float* to_row = out + i * ld;
    for (int32_t c = 0; c < ld; c += kKvBlock, block += 18) {
      const F32 d = splat(bf16_value(block));
      const auto put = [&](auto half, auto j) SLUICE_INLINE_LAMBDA {
        const int32_t at = c + half * 16 + j * kLanes;
        if (at >= ld) return;
        const F32 u = load_bits<4 * half, 15>(block + 2 + j * kLanes) - middle;
        store(to_row + at, level<Levels4>(u) * d);
      };
      unroll<16 / kLanes>([&](auto j) SLUICE_INLINE_LAMBDA {
        put(Int<0>{}, j);
        put(Int<1>{}, j);
      });
    }
  }
}

SLUICE_NOINLINE void widen_q2(const uint8_t* rows, int64_t row_bytes, int from, int to, int32_t ld,
                              float* out) {
  const F32 middle = splat(Levels2::kMiddle);
  for (int i = from; i < to; ++i) {
    const uint8_t* block = rows + i * row_bytes;
    float* to_row = out + i * ld;
    for (int32_t c = 0; c < ld; c += 2 * kKvBlock, block += 20) {
      const F32 d[2] = {splat(bf16_value(block)), splat(bf16_value(block + 2))};
      unroll<4>([&](auto quarter) SLUICE_INLINE_LAMBDA {
        unroll<16 / kLanes>([&](auto j) SLUICE_INLINE_LAMBDA {
          const int32_t at = c + quarter * 16 + j * kLanes;
          if (at >= ld) return;
          const F32 u = load_bits<2 * quarter, 3>(block + 4 + j * kLanes) - middle;
          store(to_row + at, level<Levels2>(u) * d[quarter / 2]);
        });
      });
    }
  }
}

// Rows [from, to) of the block that begins `first` positions behind its group.
SLUICE_NOINLINE void widen_q2_keys(const uint8_t* group, int64_t row_bytes, int first, int from,
                                   int to, int32_t ld, float* out) {
  const int64_t padded = row_bytes / 20 * 64, code_bytes = padded / 4;
  const F32 middle = splat(Levels2::kMiddle);
  for (int32_t c = 0; c < ld; c += 64) {
    unroll<4>([&](auto quarter) SLUICE_INLINE_LAMBDA {
      SLUICE_NO_UNROLL for (int j = 0; j < 16; j += kLanes) {
        const int32_t at = c + quarter * 16 + j;
        if (at >= ld) return;
        const F32 step = load_bf16(group + 2 * at), mid = load_bf16(group + 2 * (padded + at));
        const uint8_t* codes = group + 4 * padded + first * code_bytes + c / 4 + j;
        for (int i = from; i < to; ++i) {
          const F32 u = load_bits<2 * quarter, 3>(codes + i * code_bytes) - middle;
          store(out + i * ld + at, mul_add(u, step, mid));
        }
      }
    });
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
