// What quantization types with 256 values per block share: integer scales of sub-blocks of 16 or
// 32, the dot products with them, and the minimums of types that have an offset.
#pragma once

#include "kernels/generic/k_scales.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// out[v] = byte item `index` (unsigned or signed) times factor[v].
template <int kShift, int kMask, int NV>
SLUICE_INLINE void scale_bits(const uint8_t* s, int index, int row0, const F32 (&factor)[NV],
                              F32 (&out)[NV]) {
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    out[v] = load_bits<kShift, kMask>(s + kRowGroup * index + row0 + kLanes * v) * factor[v];
  }
}
template <int NV>
SLUICE_INLINE void scale_signed(const uint8_t* s, int index, int row0, const F32 (&factor)[NV],
                                F32 (&out)[NV]) {
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    out[v] = load_s8(s + kRowGroup * index + row0 + kLanes * v) * factor[v];
  }
}
template <int NV>
SLUICE_INLINE void negate(F32 (&x)[NV]) {
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    x[v] = splat(0.0f) - x[v];
  }
}

// Bits kMask of every byte of dword `dword` of a K-block, after a shift.
template <int kShift, int kMask>
SLUICE_INLINE Bytes plane(const uint8_t* q, int dword, int v) {
  return bits<kShift, kMask>(load_bytes(q + kBytesStep * dword + 4 * kLanes * v));
}

// acc[v][t] -= dmin * minimums . sums of x, for a whole block at once.
template <int NV, int T>
SLUICE_INLINE void subtract_mins(const uint8_t* s, int row0, const Tokens& x, F32 (&acc)[NV][T]) {
  F32 dmin[NV];
  load_supers(s, 16, 1, row0, dmin);
  I16 m[kActSuper / 2][NV];
  SLUICE_UNROLL for (int j = 0; j < kActSuper / 2; ++j) {
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      m[j][v] = load_u8_pairs(s + kRowGroup * (8 + 2 * j) + 2 * (row0 + kLanes * v));
    }
  }
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    I32 isum[NV];
    SLUICE_UNROLL for (int j = 0; j < kActSuper / 2; ++j) {
      const I16 sums = splat_pair(x.at(t, j).m.super);
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
        const I32 two = pair_dot(m[j][v], sums);
        isum[v] = j == 0 ? two : isum[v] + two;
      }
    }
    const F32 scale = splat(__builtin_bit_cast(float, x.at(t, kActSuper / 2).m.super));
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      acc[v][t] = neg_mul_add(to_f32(isum[v]), dmin[v] * scale, acc[v][t]);
      keep(acc[v][t]);
    }
  }
}

template <int NV, int T>
SLUICE_INLINE void clear(F32 (&part)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) part[v][t] = splat(0.0f);
  }
}
template <int NV>
SLUICE_INLINE void load_factors(const uint8_t* s, int index, int row0, Factor (&out)[NV]) {
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    out[v] = load_factor(s + kRowGroup * index + row0 + kLanes * v);
  }
}
template <int NV>
SLUICE_INLINE void load_signed_factors(const uint8_t* s, int index, int row0, Factor (&out)[NV]) {
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    out[v] = load_signed_factor(s + kRowGroup * index + row0 + kLanes * v);
  }
}

// Sub-blocks of 32 from `block` on, each with a scale in byte b; the block's own scale comes later.
// codes(Int<part>, q, v, quad) as in dot_parts. kHigh: with one token, the codes of the second part
// are sixteen times too large.
template <int kCodeBytes, int kParts, int kMax, bool kHigh = false, int NV, int T, class F>
SLUICE_INLINE void mul_scaled(const uint8_t* q, const uint8_t* s, int row0, const Tokens& x,
                              int block, const F& codes, F32 (&part)[NV][T]) {
  using S = Sum<kMax, 8>;
  if constexpr (T == 1 && kParts <= kMaxTogether) {
    Factor factors[kParts][NV];
    S sum[kParts][NV][1];
    const Tokens from = x.from(block);
    const uint8_t* scales = anchor(s + kRowGroup * block + row0);
    const auto load_all = [&]() SLUICE_INLINE_LAMBDA {
      SLUICE_UNROLL for (int p = 0; p < kParts; ++p) load_factors(scales, p, 0, factors[p]);
    };
    if constexpr (!kFactorsLate) load_all();
    dot_parts<kCodeBytes, 0, 8, -1>(from, q, codes, factors_of(factors), sum);
    if constexpr (kFactorsLate) load_all();
    if constexpr (kHigh) {
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) sum[1][v][0] = shr<4>(sum[1][v][0]);
    }
    SLUICE_UNROLL for (int p = 0; p < kParts; ++p) {
      accumulate_sums(from, p, sum[p], factors[p], part);
    }
  } else {
    unroll<kParts>([&](auto p) SLUICE_INLINE_LAMBDA {
      const uint8_t* at = again<decltype(p)::value>(q);
      Factor factors[NV];
      S sum[NV][T];
      load_factors(s, block + p, row0, factors);
      dot_sums<0, 8, -1, false>(
          x, block + p, [&](int v, int j) SLUICE_INLINE_LAMBDA { return codes(p, at, v, j); },
          factors, sum);
      accumulate_sums(x, block + p, sum, factors, part);
    });
  }
}

// Sub-blocks of 16, two per activation block, from `block` on, with signed scales in bytes 2b and
// 2b + 1. kMax: see dot_sums.
template <int kCodeBytes, int kParts, int kMax, int kOffsetShift, int NV, int T, class F>
SLUICE_INLINE void mul_signed_halves(const uint8_t* q, const uint8_t* s, int row0, const Tokens& x,
                                     int block, const F& codes, F32 (&part)[NV][T]) {
  using S = Sum<kMax, 4>;
  if constexpr (T == 1 && kFactorsLate && kParts <= kMaxTogether) {
    F32 both[kParts][NV];
    const Tokens from = x.from(block);
    const uint8_t* scales = anchor(s + kRowGroup * 2 * block + row0);
    unroll<2>([&](auto half) SLUICE_INLINE_LAMBDA {
      S sum[kParts][NV][1];
      dot_parts<kCodeBytes, 4 * half, 4, kOffsetShift>(from, q, codes, Ones{}, sum);
      SLUICE_UNROLL for (int p = 0; p < kParts; ++p) {
        Factor factors[NV];
        load_signed_factors(scales, 2 * p + half, 0, factors);
        SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
          F32& b = both[p][v];
          if constexpr (half == 0) {
            b = finish(sum[p][v][0], factors[v]);
          } else {
            b = finish_second(b, sum[p][v][0], factors[v]);
          }
          keep(b);
        }
      }
    });
    SLUICE_UNROLL for (int p = 0; p < kParts; ++p) {
      const F32 d = splat(from.at(0, p).m.d);
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
        part[v][0] = mul_add(both[p][v], d, part[v][0]);
      }
    }
  } else if constexpr (T == 1 && kParts <= kMaxTogether) {
    Factor factors[2][kParts][NV];
    S sum[2][kParts][NV][1];
    const Tokens from = x.from(block);
    const uint8_t* scales = anchor(s + kRowGroup * 2 * block + row0);
    unroll<2>([&](auto half) SLUICE_INLINE_LAMBDA {
      SLUICE_UNROLL for (int p = 0; p < kParts; ++p) {
        load_signed_factors(scales, 2 * p + half, 0, factors[half][p]);
      }
      dot_parts<kCodeBytes, 4 * half, 4, kOffsetShift>(from, q, codes, factors[half], sum[half]);
    });
    SLUICE_UNROLL for (int p = 0; p < kParts; ++p) {
      accumulate_halves(from, p, sum[0][p], sum[1][p], factors[0][p], factors[1][p], part);
    }
  } else {
    unroll<kParts>([&](auto p) SLUICE_INLINE_LAMBDA {
      const uint8_t* at = again<decltype(p)::value>(q);
      Factor factors[2][NV];
      S sum[2][NV][T];
      unroll<2>([&](auto half) SLUICE_INLINE_LAMBDA {
        load_signed_factors(s, 2 * (block + p) + half, row0, factors[half]);
        dot_sums<4 * half, 4, kOffsetShift, false>(
            x, block + p, [&](int v, int j) SLUICE_INLINE_LAMBDA { return codes(p, at, v, j); },
            factors[half], sum[half]);
      });
      accumulate_halves(x, block + p, sum[0], sum[1], factors[0], factors[1], part);
    });
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
