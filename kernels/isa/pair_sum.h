// Integer sums for targets whose byte product gives 16-bit pair sums. As many as fit are added in
// 16 bits before they are widened, which for small codes at least halves the work. The target
// provides no_pairs() (zero), pair_products(codes, quad), + and shl<n> on I16, widen_pairs(I16),
// load_factor and load_signed_factor.
#pragma once

#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// With codes up to kMax and activations up to 127, two per lane: how many quads fit in 16 bits.
template <int kMax>
constexpr int kQuadsThatFit = 32767 / (2 * 127 * kMax) >= 8   ? 8
                              : 32767 / (2 * 127 * kMax) >= 4 ? 4
                              : 32767 / (2 * 127 * kMax) >= 2 ? 2
                                                              : 1;

template <int kEvery>
struct PairSum {
  I32 wide;
  I16 narrow;
};
template <int kMax, int kQuads>
using Sum = PairSum<kQuadsThatFit<kMax>>;
template <class S>
constexpr int kSettleEvery = 8;
template <int kEvery>
constexpr int kSettleEvery<PairSum<kEvery>> = kEvery;

template <class S>
SLUICE_INLINE S start(I32 offset) {
  return {offset, no_pairs()};
}
template <int kEvery>
SLUICE_INLINE PairSum<kEvery> dot(PairSum<kEvery> sum, const Codes& w, Quad x) {
  sum.narrow = sum.narrow + pair_products(w, x);
  keep(sum.narrow);
  return sum;
}
template <int kEvery>
SLUICE_INLINE void settle(PairSum<kEvery>& sum) {
  sum.wide = sum.wide + widen_pairs(sum.narrow);
  sum.narrow = no_pairs();
}
template <int kEvery>
SLUICE_INLINE I32 finish(const PairSum<kEvery>& sum) {
  return sum.wide;
}

// A sub-block's integer scale, in both halves of a lane: it multiplies where a sum is widened
// anyway.
using Factor = I16;
constexpr bool kFactorsLate = false;
template <int kEvery>
SLUICE_INLINE void settle(PairSum<kEvery>& sum, Factor factor) {
  sum.wide = sum.wide + pair_dot(sum.narrow, factor);
  sum.narrow = no_pairs();
}
template <int kEvery>
SLUICE_INLINE F32 finish(const PairSum<kEvery>& sum, Factor) {
  return to_f32(sum.wide);
}
template <int kEvery>
SLUICE_INLINE F32 finish_two(const PairSum<kEvery>& a, Factor, const PairSum<kEvery>& b, Factor) {
  return to_f32(a.wide + b.wide);
}
// The same for sums stored apart from their scales, row by row.
SLUICE_INLINE F32 scaled(I32 sum, I32 factor) {
  return to_f32(sum * factor);
}
SLUICE_INLINE F32 scaled_two(I32 a, I32 factor_a, I32 b, I32 factor_b) {
  return to_f32(a * factor_a + b * factor_b);
}

// Sums over 16 columns start with their offset in 16 bits. They may wrap on the way, but the result
// fits (kMax is the largest distance of a code from the offset).
SLUICE_INLINE int32_t half_word(int32_t sum01, int32_t sum23) {
  return static_cast<int32_t>((static_cast<uint32_t>(sum01) & 0xffff) | static_cast<uint32_t>(sum23)
                                                                            << 16);
}
SLUICE_INLINE int32_t half_sum(int32_t word) {
  return static_cast<int16_t>(word) + (word >> 16);
}
template <class S, int kShift>
SLUICE_INLINE S start_half(int32_t word) {
  return {splat_i32(0), shl<kShift>(splat_pair(word))};
}
// Start of a sum over decoded codes stored with 1 << kShift added: in 16 bits if the result fits.
constexpr bool kNarrowSums = true;
template <class S, int kShift, int kFirst, int kQuads>
SLUICE_INLINE S start_decoded(const ActMeta& m) {
  if constexpr (kSettleEvery<S> >= kQuads) {
    I16 pairs = splat_pair(m.nsum16[kFirst / 4]);
    if constexpr (kQuads == 8) pairs = pairs + splat_pair(m.nsum16[1]);
    return {splat_i32(0), shl<kShift>(pairs)};
  } else if constexpr (kQuads == 8) {
    return start<S>(shl<kShift>(splat_i32(m.nsum)));
  } else {
    return start<S>(pair_dot(splat_pair(m.nsum16[kFirst / 4]), splat_pair(0x10001 << kShift)));
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
