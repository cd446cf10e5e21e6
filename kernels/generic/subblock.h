// The dot product of one sub-block: codes of NV vectors of rows times the activations of T tokens,
// exact in integers. All multiplication of quantized weights goes through here.
#pragma once

#include "kernels/generic/pack.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// The activations of T tokens at one K-block: token t's blocks start at base + t * stride. `ahead`
// is null, or where to prefetch weights, `step` bytes for each of the blocks, while several tokens
// are multiplied. With that much work per byte no core issues the next load in time, and the
// hardware prefetchers are busy with one stream per token.
struct Tokens {
  const uint8_t* base;
  size_t stride;
  const uint8_t* ahead = nullptr;
  int step = 0;
  SLUICE_INLINE_METHOD const ActBlock& at(int t, int block) const {
    return *reinterpret_cast<const ActBlock*>(base + static_cast<size_t>(t) * stride +
                                              static_cast<size_t>(block) * sizeof(ActBlock));
  }
  // One token's activations, from `block` on.
  SLUICE_INLINE_METHOD Tokens from(int block) const {
    return {anchor(base + static_cast<size_t>(block) * sizeof(ActBlock)), stride};
  }
  SLUICE_INLINE_METHOD void fetch(int block) const {
    if (ahead == nullptr) return;
    SLUICE_UNROLL for (int i = 0; i < step; i += 64) prefetch(ahead + step * block + i);
  }
};

// Maximum number of sub-blocks sharing bytes that run together for one token.
constexpr int kMaxTogether = 4;

// Quad j of NV vectors times T tokens. j is a constant, encoded in the instructions. X is Tokens;
// it is a parameter so that only targets with kTiledActs need the functions for it.
template <int NV, int T, class S, class X, class F>
SLUICE_INLINE void dot_quad(const X& x, int block, int j, const F& codes, S (&sum)[NV][T]) {
  keep_order();
  Codes w[NV];
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) w[v] = prepare(codes(v, j));
  if constexpr (kTiledActs && T == kActTile) {
    const auto tile = load_quad_tile(x.at(j / 2, block), j % 2);
    SLUICE_UNROLL for (int t = 0; t < T; ++t) {
      const Quad q = quad_of(tile, t);
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) sum[v][t] = dot(sum[v][t], w[v], q);
    }
  } else {
    SLUICE_UNROLL for (int t = 0; t < T; ++t) {
      const Quad q = load_quad(x.at(t, block), j);
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) sum[v][t] = dot(sum[v][t], w[v], q);
    }
  }
}
// Sub-blocks have an integer scale each (Factor[NV]), applied as soon as the target likes, or none
// (Ones).
struct Ones {
  SLUICE_INLINE_METHOD Ones operator[](int) const { return {}; }
};
// The factors for dot_parts: none if they are loaded after it.
template <class W>
SLUICE_INLINE decltype(auto) factors_of(const W& factors) {
  if constexpr (kFactorsLate) {
    return Ones{};
  } else {
    return (factors);
  }
}
template <class S>
SLUICE_INLINE void settle(S& sum, Ones) {
  settle(sum);
}
template <int NV, int T, class S, class W>
SLUICE_INLINE void settle_all(const W& factors, S (&sum)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) settle(sum[v][t], factors[v]);
  }
}

// Initial sums of T tokens: (-sum x) << kOffsetShift, or 0 if kOffsetShift is -1.
template <int kFirst, int kQuads, int kOffsetShift, int NV, int T, class S>
SLUICE_INLINE void start_all(const Tokens& x, int block, S (&sum)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    S first;
    if constexpr (kOffsetShift < 0) {
      first = start<S>(splat_i32(0));
    } else if constexpr (kQuads == 8) {
      first = start<S>(shl<kOffsetShift>(splat_i32(x.at(t, block).m.nsum)));
    } else {
      first = start_half<S, kOffsetShift>(x.at(t, block).m.nsum16[kFirst / 4]);
    }
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) sum[v][t] = first;
  }
}

// sum[v][t] = sum over kQuads quads of codes(v, quad) . x[t], plus (-sum x) << kOffsetShift if
// kOffsetShift >= 0. Quads kFirst .. kFirst + kQuads of activation block `block`. With kPairs the
// order of quads is 0, 4, 1, 5, ... so that both nibbles of a byte are used together. kMax: the
// largest code, or with kQuads == 4 the largest distance from the offset.
template <int kFirst, int kQuads, int kOffsetShift, bool kPairs, int NV, int T, class S, class W,
          class F>
SLUICE_INLINE void dot_sums(const Tokens& x, int block, const F& codes, const W& factors,
                            S (&sum)[NV][T]) {
  static_assert(kQuads == 4 || kQuads == 8);
  constexpr int kNext = kPairs ? kQuads / 2 : 1;  // distance between the two quads of a step
  constexpr int kEvery = kSettleEvery<S> < kQuads ? kSettleEvery<S> : kQuads;
  if constexpr (kFirst == 0) x.fetch(block);
  start_all<kFirst, kQuads, kOffsetShift>(x, block, sum);
  SLUICE_UNROLL for (int i = 0; i < kQuads / 2; ++i) {
    const int j = kFirst + (kPairs ? i : 2 * i);
    dot_quad(x, block, j, codes, sum);
    if constexpr (kEvery == 1) settle_all(factors, sum);
    dot_quad(x, block, j + kNext, codes, sum);
    if ((2 * i + 2) % kEvery == 0) settle_all(factors, sum);
  }
}
template <int NV, int T, int kMax, int kFirst, int kQuads, int kOffsetShift, bool kPairs, class F>
SLUICE_INLINE void dot_codes(const Tokens& x, int block, const F& codes, I32 (&out)[NV][T]) {
  Sum<kMax, kQuads> sum[NV][T];
  dot_sums<kFirst, kQuads, kOffsetShift, kPairs>(x, block, codes, Ones{}, sum);
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) out[v][t] = finish(sum[v][t]);
  }
}

// With one token, memory bandwidth is the limit. On blocks of 256 values, which keep a core busy
// for long, hardware prefetch alone reaches half of it. So bytes are prefetched this far ahead,
// evenly between the multiplications; in bursts the gain is half.
constexpr int kFetchAhead = 4096;

// Sub-blocks whose codes share bytes, for one token: each byte is read once, in memory order.
// kCodeBytes: code bytes of a block of 256. codes(Int<part>, q, v, quad) are the codes for
// activation block `part` of x; the sums are those of dot_sums.
template <int kCodeBytes, int kFirst, int kQuads, int kOffsetShift, int kParts, int NV, class S,
          class W, class F>
SLUICE_INLINE void dot_parts(const Tokens& x, const uint8_t* q, const F& codes, const W& factors,
                             S (&sum)[kParts][NV][1]) {
  constexpr int kEvery = kSettleEvery<S> < kQuads ? kSettleEvery<S> : kQuads;
  SLUICE_UNROLL for (int p = 0; p < kParts; ++p) {
    start_all<kFirst, kQuads, kOffsetShift>(x, p, sum[p]);
  }
  constexpr int kDwords = kCodeBytes * kParts / kActValues;  // of eight quads
  SLUICE_UNROLL for (int j = kFirst; j < kFirst + kQuads; ++j) {
    SLUICE_UNROLL for (int n = 0; n < (kDwords + 7) / 8; ++n) {
      const int i = kDwords * j / 8 + n;
      const bool due = i < kDwords * (j + 1) / 8 && kBytesStep * i % 64 == 0;
      if (due) prefetch(q + kFetchAhead + kBytesStep * i);
    }
    unroll<kParts>([&](auto part) SLUICE_INLINE_LAMBDA {
      dot_quad(
          x, part, j, [&](int v, int quad) SLUICE_INLINE_LAMBDA { return codes(part, q, v, quad); },
          sum[part]);
    });
    if ((j + 1) % kEvery == 0) {
      SLUICE_UNROLL for (int p = 0; p < kParts; ++p) settle_all(factors[p], sum[p]);
    }
  }
}

// As dot_quad, for signed 8-bit codes.
template <int NV, int T, class X, class F>
SLUICE_INLINE void dot_signed_quad(const X& x, int block, int j, const F& codes,
                                   I32 (&sum)[NV][T]) {
  keep_order();
  SignedCodes w[NV];
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) w[v] = prepare_signed(codes(v, j));
  if constexpr (kTiledActs && T == kActTile) {
    const auto tile = load_signed_quad_tile(x.at(j / 2, block), j % 2);
    SLUICE_UNROLL for (int t = 0; t < T; ++t) {
      const SignedQuad q = signed_quad_of(tile, t);
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) sum[v][t] = dot_signed(sum[v][t], w[v], q);
    }
  } else {
    SLUICE_UNROLL for (int t = 0; t < T; ++t) {
      const SignedQuad q = load_signed_quad(x.at(t, block), j);
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) sum[v][t] = dot_signed(sum[v][t], w[v], q);
    }
  }
}

// The same as dot_codes for signed 8-bit codes, over a whole activation block.
template <int NV, int T, bool kPairs, class F>
SLUICE_INLINE void dot_signed_codes(const Tokens& x, int block, const F& codes, I32 (&out)[NV][T]) {
  x.fetch(block);
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    const I32 offset = signed_offset(x.at(t, block).m.nsum);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) out[v][t] = offset;
  }
  constexpr int kNext = kPairs ? 4 : 1, kTurn = kPairs ? 1 : 2;
  SLUICE_UNROLL for (int i = 0; i < 4; ++i) {
    dot_signed_quad(x, block, i * kTurn, codes, out);
    dot_signed_quad(x, block, i * kTurn + kNext, codes, out);
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

// acc[v][t] += sum[v][t] * factors[v] * d[t].
template <int NV, int T, class S>
SLUICE_INLINE void accumulate_sums(const Tokens& x, int block, const S (&sum)[NV][T],
                                   const Factor (&factors)[NV], F32 (&acc)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    const F32 d = splat(x.at(t, block).m.d);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      acc[v][t] = mul_add(finish(sum[v][t], factors[v]), d, acc[v][t]);
    }
  }
}

// The same for two sub-blocks of 16 in one activation block.
template <int NV, int T, class S>
SLUICE_INLINE void accumulate_halves(const Tokens& x, int block, const S (&sum0)[NV][T],
                                     const S (&sum1)[NV][T], const Factor (&factors0)[NV],
                                     const Factor (&factors1)[NV], F32 (&acc)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    const F32 d = splat(x.at(t, block).m.d);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      const F32 both = finish_two(sum0[v][t], factors0[v], sum1[v][t], factors1[v]);
      acc[v][t] = mul_add(both, d, acc[v][t]);
    }
  }
}

// acc[v][t] += factor[v] * part[v][t].
template <int NV, int T>
SLUICE_INLINE void accumulate_super(const F32 (&part)[NV][T], const F32 (&factor)[NV],
                                    F32 (&acc)[NV][T]) {
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      acc[v][t] = mul_add(part[v][t], factor[v], acc[v][t]);
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
SLUICE_INLINE void accumulate_scaled_halves(const Tokens& x, int block, const I32 (&isum0)[NV][T],
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
