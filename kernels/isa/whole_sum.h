// Integer sums for targets whose products arrive in 32 bits. Nothing overflows, so settle() does
// nothing, and a sub-block's scale multiplies as f32. The target provides load_factor and
// load_signed_factor.
#pragma once

#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

template <int kMax, int kQuads>
using Sum = I32;
template <class S>
constexpr int kSettleEvery = 8;

template <class S>
SLUICE_INLINE S start(I32 offset) {
  return offset;
}
// Start of a sum over 16 columns: a word made of the two sums over columns 0, 1 and 2, 3 of every
// four, then shifted.
SLUICE_INLINE int32_t half_word(int32_t sum01, int32_t sum23) {
  return sum01 + sum23;
}
SLUICE_INLINE int32_t half_sum(int32_t word) {
  return word;
}
template <class S, int kShift>
SLUICE_INLINE S start_half(int32_t word) {
  return shl<kShift>(splat_i32(word));
}
// Start of a sum over decoded codes stored with 1 << kShift added; -1: nothing.
constexpr bool kNarrowSums = false;
template <class S, int kShift, int kFirst, int kQuads>
SLUICE_INLINE S start_decoded(const ActMeta& m) {
  if constexpr (kShift < 0) {
    return splat_i32(0);
  } else {
    return shl<kShift>(splat_i32(kQuads == 8 ? m.nsum : m.nsum16[kFirst / 4]));
  }
}

using Factor = F32;
SLUICE_INLINE void settle(I32&) {}
SLUICE_INLINE void settle(I32&, Factor) {}
SLUICE_INLINE I32 finish(I32 sum) {
  return sum;
}
SLUICE_INLINE F32 finish(I32 sum, Factor factor) {
  return to_f32(sum) * factor;
}
// Factors are used once sums are complete, so they are loaded late.
constexpr bool kFactorsLate = true;
SLUICE_INLINE F32 finish_second(F32 first, I32 sum, Factor factor) {
  return mul_add(to_f32(sum), factor, first);
}
SLUICE_INLINE F32 finish_two(I32 a, Factor factor_a, I32 b, Factor factor_b) {
  return finish_second(finish(a, factor_a), b, factor_b);
}
// The same for sums stored apart from their scales, row by row.
SLUICE_INLINE F32 scaled(I32 sum, I32 factor) {
  return finish(sum, to_f32(factor));
}
SLUICE_INLINE F32 scaled_two(I32 a, I32 factor_a, I32 b, I32 factor_b) {
  return finish_two(a, to_f32(factor_a), b, to_f32(factor_b));
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
