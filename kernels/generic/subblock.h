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

// Codes whose shifts depend on the quad: their loop must be unrolled on every target.
template <class F>
constexpr bool kQuadIsConstant = !kLoopOverQuads;

// How many sub-blocks that share bytes may go together for one token: each takes registers.
constexpr int kMaxTogether = kLoopOverQuads ? 2 : 4;

// Bytes that a quad of activations takes, in 8 or in 16 bits: a block that holds both serves
// unsigned codes with 8 (load_quad) and signed ones with 16 (load_signed_quad).
constexpr int kQuadBytes = sizeof(ActBlock) == sizeof(ActBlock16) ? 8 : 4;
constexpr int kSignedQuadBytes = sizeof(ActBlock) == sizeof(ActBlock8) ? 4 : 8;

// Quad i + j of NV vectors times T tokens. j is a constant, so that an address is what i makes of
// it plus a constant, which an instruction holds.
template <int NV, int T, class S, class F>
SLUICE_INLINE void dot_quad(const Tokens& x, int block, int i, int j, const F& codes,
                            S (&sum)[NV][T]) {
  Codes w[NV];
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) w[v] = prepare(codes(v, i, j));
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    const Quad q = load_quad(Tokens{x.base + kQuadBytes * i, x.stride}.at(t, block), j);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) sum[v][t] = dot(sum[v][t], w[v], q);
  }
}
template <int NV, int T, class S>
SLUICE_INLINE void settle_all(S (&sum)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) settle(sum[v][t]);
  }
}

// out[v][t] = sum over kQuads quads of codes(v, 0, quad) . x[t], plus (-sum x) << kOffsetShift when
// kOffsetShift >= 0. Quads kFirst .. kFirst + kQuads of activation block `block`. With kPairs the
// quads are taken as 0, 4, 1, 5, ... so that two nibbles of one byte are used together.
template <int NV, int T, int kMax, int kFirst, int kQuads, int kOffsetShift, bool kPairs, class F>
SLUICE_INLINE void dot_codes(const Tokens& x, int block, const F& codes, I32 (&out)[NV][T]) {
  static_assert(kQuads == 4 || kQuads == 8);
  using S = Sum<kMax, kQuads>;
  constexpr int kNext = kPairs ? kQuads / 2 : 1;  // from the first quad of a step to the second
  constexpr int kEvery = kSettleEvery<S> < kQuads ? kSettleEvery<S> : kQuads;
  S sum[NV][T];
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    I32 offset = splat_i32(0);
    if constexpr (kOffsetShift >= 0) {
      const ActMeta& m = x.at(t, block).m;
      offset = shl<kOffsetShift>(splat_i32(kQuads == 8 ? m.nsum : m.nsum16[kFirst / 4]));
    }
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) sum[v][t] = start<S>(offset);
  }
  if constexpr (kQuadIsConstant<F>) {
    SLUICE_UNROLL for (int i = 0; i < kQuads / 2; ++i) {
      const int j = kFirst + (kPairs ? i : 2 * i);
      dot_quad(x, block, 0, j, codes, sum);
      dot_quad(x, block, 0, j + kNext, codes, sum);
      if ((2 * i + 2) % kEvery == 0) settle_all(sum);
    }
  } else {
    constexpr int kTurn = kPairs ? 1 : 2;
    SLUICE_NO_UNROLL for (int i = 0; i < kQuads / 2 * kTurn; i += kTurn) {
      dot_quad(x, block, i, kFirst, codes, sum);
      dot_quad(x, block, i, kFirst + kNext, codes, sum);
      if constexpr (kEvery < kQuads) settle_all(sum);
    }
    if constexpr (kEvery == kQuads) settle_all(sum);
  }
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) out[v][t] = finish(sum[v][t]);
  }
}

// Sub-blocks whose codes share bytes, for one token: each byte is read once, in the order of
// memory, which the prefetcher of a CPU follows. codes(Int<part>, v, 0, quad) belong to activation
// block `block` + part; the sums are those of dot_codes.
template <int kParts, int NV, int kMax, int kFirst, int kQuads, int kOffsetShift, class F>
SLUICE_INLINE void dot_parts(const Tokens& x, int block, const F& codes,
                             I32 (&out)[kParts][NV][1]) {
  using S = Sum<kMax, kQuads>;
  constexpr int kEvery = kSettleEvery<S> < kQuads ? kSettleEvery<S> : kQuads;
  S sum[kParts][NV][1];
  SLUICE_UNROLL for (int p = 0; p < kParts; ++p) {
    I32 offset = splat_i32(0);
    if constexpr (kOffsetShift >= 0) {
      const ActMeta& m = x.at(0, block + p).m;
      offset = shl<kOffsetShift>(splat_i32(kQuads == 8 ? m.nsum : m.nsum16[kFirst / 4]));
    }
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) sum[p][v][0] = start<S>(offset);
  }
  const auto step = [&](int i, int j) SLUICE_INLINE_LAMBDA {
    unroll<kParts>([&](auto part) SLUICE_INLINE_LAMBDA {
      dot_quad(
          x, block + part, i, j,
          [&](int v, int from, int quad)
              SLUICE_INLINE_LAMBDA { return codes(part, v, from, quad); },
          sum[part]);
    });
  };
  const auto settle_parts = [&]() SLUICE_INLINE_LAMBDA {
    SLUICE_UNROLL for (int p = 0; p < kParts; ++p) settle_all(sum[p]);
  };
  if constexpr (kLoopOverQuads) {
    SLUICE_NO_UNROLL for (int i = 0; i < kQuads; i += 2) {
      step(i, kFirst);
      step(i, kFirst + 1);
      if constexpr (kEvery < kQuads) settle_parts();
    }
    if constexpr (kEvery == kQuads) settle_parts();
  } else {
    SLUICE_UNROLL for (int j = 0; j < kQuads; ++j) {
      step(0, kFirst + j);
      if ((j + 1) % kEvery == 0) settle_parts();
    }
  }
  SLUICE_UNROLL for (int p = 0; p < kParts; ++p) {
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) out[p][v][0] = finish(sum[p][v][0]);
  }
}

// As dot_quad, for signed 8-bit codes.
template <int NV, int T, class F>
SLUICE_INLINE void dot_signed_quad(const Tokens& x, int block, int i, int j, const F& codes,
                                   I32 (&sum)[NV][T]) {
  SignedCodes w[NV];
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) w[v] = prepare_signed(codes(v, i, j));
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    const SignedQuad q =
        load_signed_quad(Tokens{x.base + kSignedQuadBytes * i, x.stride}.at(t, block), j);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) sum[v][t] = dot_signed(sum[v][t], w[v], q);
  }
}

// The same as dot_codes for signed 8-bit codes, over a whole activation block.
template <int NV, int T, bool kPairs, class F>
SLUICE_INLINE void dot_signed_codes(const Tokens& x, int block, const F& codes, I32 (&out)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    const I32 offset = signed_offset(x.at(t, block).m.nsum);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) out[v][t] = offset;
  }
  constexpr int kNext = kPairs ? 4 : 1, kTurn = kPairs ? 1 : 2;
  if constexpr (kLoopOverQuads) {
    SLUICE_NO_UNROLL for (int i = 0; i < 4 * kTurn; i += kTurn) {
      dot_signed_quad(x, block, i, 0, codes, out);
      dot_signed_quad(x, block, i, kNext, codes, out);
    }
  } else {
    SLUICE_UNROLL for (int i = 0; i < 4; ++i) {
      dot_signed_quad(x, block, 0, i * kTurn, codes, out);
      dot_signed_quad(x, block, 0, i * kTurn + kNext, codes, out);
    }
  }
}

// acc[v][t] += isum[v][t] * (dw[v] * d[t]).
template <int NV, int T>
SLUICE_INLINE void accumulate(const Tokens& x, int block, const I32 (&isum)[NV][T],
                              const F32 (&dw)[NV], F32 (&acc)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    const F32 d = splat(x.at(t, block).m.d);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      acc[v][t] = mul_add(to_f32(isum[v][t]), dw[v] * d, acc[v][t]);
    }
  }
}

// acc[v][t] += m[v] * (d[t] * sum x[t]).
template <int NV, int T>
SLUICE_INLINE void accumulate_min(const Tokens& x, int block, const F32 (&m)[NV],
                                  F32 (&acc)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    const F32 dsum = splat(x.at(t, block).m.dsum);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) acc[v][t] = mul_add(m[v], dsum, acc[v][t]);
  }
}

// Two sub-blocks of 16 with scales of their own:
// acc[v][t] += (isum0[v][t] * dw0[v] + isum1[v][t] * dw1[v]) * d[t].
template <int NV, int T>
SLUICE_INLINE void accumulate_halves(const Tokens& x, int block, const I32 (&isum0)[NV][T],
                                     const I32 (&isum1)[NV][T], const F32 (&dw0)[NV],
                                     const F32 (&dw1)[NV], F32 (&acc)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    const F32 d = splat(x.at(t, block).m.d);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      const F32 first = to_f32(isum0[v][t]) * dw0[v];
      acc[v][t] = mul_add(mul_add(to_f32(isum1[v][t]), dw1[v], first), d, acc[v][t]);
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
