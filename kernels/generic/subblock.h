// The inner product of one sub-block: codes of NV vectors of rows times the activations of T
// tokens, exact in integers. Everything that multiplies quantized weights goes through here.
#pragma once

#include "kernels/generic/pack.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// The activations of T tokens at one K-block: token t's blocks start at base + t * stride.
struct Tokens {
  const uint8_t* base;
  size_t stride;
  SLUICE_INLINE_METHOD const ActBlock& at(int t, int block) const {
    return *reinterpret_cast<const ActBlock*>(base + static_cast<size_t>(t) * stride +
                                              static_cast<size_t>(block) * sizeof(ActBlock));
  }
};

// out[v][t] = sum over kQuads quads of codes(v, j) . x[t], plus (-sum x) << kOffsetShift when
// kOffsetShift >= 0. Quads kFirst .. kFirst + kQuads of activation block `block`. With kPairs the
// quads are taken as 0, 4, 1, 5, ... so that two nibbles of one byte are used together.
template <int NV, int T, int kMax, int kFirst, int kQuads, int kOffsetShift, bool kPairs, class F>
SLUICE_INLINE void dot_codes(const Tokens& x, int block, const F& codes, I32 (&out)[NV][T]) {
  using S = Sum<kMax, kQuads>;
  I32 offset[T];
  S sum[NV][T];
  unroll<T>([&](auto t) SLUICE_INLINE_LAMBDA {
    if constexpr (kOffsetShift >= 0) {
      const ActMeta& m = x.at(t, block).m;
      const int32_t* nsum = kQuads == 8 ? &m.nsum : &m.nsum16[kFirst / 4];
      offset[t] = shl<(kOffsetShift < 0 ? 0 : kOffsetShift)>(splat_i32(*nsum));
    } else {
      offset[t] = splat_i32(0);
    }
    unroll<NV>([&](auto v) SLUICE_INLINE_LAMBDA { sum[v][t] = start<S>(offset[t]); });
  });
  unroll<kQuads>([&](auto i) SLUICE_INLINE_LAMBDA {
    constexpr int n = decltype(i)::value;
    constexpr int j = kPairs ? n / 2 + (n % 2) * (kQuads / 2) : n;
    Codes w[NV];
    unroll<NV>([&](auto v) SLUICE_INLINE_LAMBDA { w[v] = prepare(codes(v, Int<j>{})); });
    unroll<T>([&](auto t) SLUICE_INLINE_LAMBDA {
      const Quad q = load_quad(x.at(t, block), kFirst + j);
      unroll<NV>([&](auto v) SLUICE_INLINE_LAMBDA { sum[v][t] = dot(sum[v][t], w[v], q); });
    });
  });
  unroll<T>([&](auto t) SLUICE_INLINE_LAMBDA {
    unroll<NV>([&](auto v) SLUICE_INLINE_LAMBDA { out[v][t] = finish(sum[v][t], offset[t]); });
  });
}

// The same for signed 8-bit codes, over a whole activation block.
template <int NV, int T, bool kPairs, class F>
SLUICE_INLINE void dot_signed_codes(const Tokens& x, int block, const F& codes, I32 (&out)[NV][T]) {
  unroll<T>([&](auto t) SLUICE_INLINE_LAMBDA {
    const I32 offset = signed_offset(x.at(t, block).m.nsum);
    unroll<NV>([&](auto v) SLUICE_INLINE_LAMBDA { out[v][t] = offset; });
  });
  unroll<8>([&](auto i) SLUICE_INLINE_LAMBDA {
    constexpr int n = decltype(i)::value;
    constexpr int j = kPairs ? n / 2 + (n % 2) * 4 : n;
    SignedCodes w[NV];
    unroll<NV>([&](auto v) SLUICE_INLINE_LAMBDA { w[v] = prepare_signed(codes(v, Int<j>{})); });
    unroll<T>([&](auto t) SLUICE_INLINE_LAMBDA {
      const SignedQuad q = load_signed_quad(x.at(t, block), j);
      unroll<NV>([&](auto v) SLUICE_INLINE_LAMBDA { out[v][t] = dot_signed(out[v][t], w[v], q); });
    });
  });
}

// acc[v][t] += isum[v][t] * (dw[v] * d[t]).
template <int NV, int T>
SLUICE_INLINE void accumulate(const Tokens& x, int block, const I32 (&isum)[NV][T],
                              const F32 (&dw)[NV], F32 (&acc)[NV][T]) {
  unroll<T>([&](auto t) SLUICE_INLINE_LAMBDA {
    const F32 d = splat(x.at(t, block).m.d);
    unroll<NV>([&](auto v) SLUICE_INLINE_LAMBDA {
      acc[v][t] = mul_add(to_f32(isum[v][t]), dw[v] * d, acc[v][t]);
    });
  });
}

// acc[v][t] += m[v] * (d[t] * sum x[t]).
template <int NV, int T>
SLUICE_INLINE void accumulate_min(const Tokens& x, int block, const F32 (&m)[NV],
                                  F32 (&acc)[NV][T]) {
  unroll<T>([&](auto t) SLUICE_INLINE_LAMBDA {
    const F32 dsum = splat(x.at(t, block).m.dsum);
    unroll<NV>([&](auto v) SLUICE_INLINE_LAMBDA { acc[v][t] = mul_add(m[v], dsum, acc[v][t]); });
  });
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
