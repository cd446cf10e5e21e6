// SIMD operations for AArch64: NEON, with dot product instructions where the compiler may use them
// (isa/neondot.cpp), otherwise widening multiplications and pairwise sums. Codes and activations
// are both signed, so 7-bit and signed codes take the same path and need no offsets.
#pragma once

#include <arm_neon.h>
#include <string.h>

#include "kernels/isa/act_block.h"
#include "kernels/isa/native_order.h"
#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kLanes = 4;
constexpr int kRowGroup = 8;
constexpr int kTokenTile = 4, kTileVecs = 2;
constexpr bool kWideSupers = false;
#if defined(__ARM_FEATURE_DOTPROD)
constexpr const char* kTargetName = "neondot";
#else
constexpr const char* kTargetName = "neon";
#endif

struct F32 {
  float32x4_t v;
};
struct I32 {
  int32x4_t v;
};
struct Mask {
  uint32x4_t v;
};
struct Bytes {
  uint8x16_t v;
};

SLUICE_INLINE F32 splat(float x) {
  return {vdupq_n_f32(x)};
}
SLUICE_INLINE F32 load(const float* p) {
  return {vld1q_f32(p)};
}
SLUICE_INLINE void store(float* p, F32 a) {
  vst1q_f32(p, a.v);
}
SLUICE_INLINE F32 operator+(F32 a, F32 b) {
  return {vaddq_f32(a.v, b.v)};
}
SLUICE_INLINE F32 operator-(F32 a, F32 b) {
  return {vsubq_f32(a.v, b.v)};
}
SLUICE_INLINE F32 operator*(F32 a, F32 b) {
  return {vmulq_f32(a.v, b.v)};
}
SLUICE_INLINE F32 operator/(F32 a, F32 b) {
  return {vdivq_f32(a.v, b.v)};
}
SLUICE_INLINE F32 mul_add(F32 a, F32 b, F32 c) {
  return {vfmaq_f32(c.v, a.v, b.v)};
}
SLUICE_INLINE F32 neg_mul_add(F32 a, F32 b, F32 c) {
  return {vfmsq_f32(c.v, a.v, b.v)};
}
SLUICE_INLINE F32 min(F32 a, F32 b) {
  return {vbslq_f32(vcltq_f32(a.v, b.v), a.v, b.v)};
}
SLUICE_INLINE F32 max(F32 a, F32 b) {
  return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)};
}
SLUICE_INLINE F32 abs(F32 a) {
  return {vabsq_f32(a.v)};
}
SLUICE_INLINE F32 sqrt(F32 a) {
  return {vsqrtq_f32(a.v)};
}
SLUICE_INLINE float reduce_add(F32 a) {
  return vaddvq_f32(a.v);
}
SLUICE_INLINE float reduce_max(F32 a) {
  return vmaxvq_f32(a.v);
}
SLUICE_INLINE Mask operator<(F32 a, F32 b) {
  return {vcltq_f32(a.v, b.v)};
}
SLUICE_INLINE F32 select(Mask m, F32 a, F32 b) {
  return {vbslq_f32(m.v, a.v, b.v)};
}

// Lane i is the sum of the lanes of m[i], all added in the same order.
SLUICE_INLINE F32 reduce_add_each(const F32 (&m)[kLanes]) {
  return {vpaddq_f32(vpaddq_f32(m[0].v, m[1].v), vpaddq_f32(m[2].v, m[3].v))};
}

SLUICE_INLINE I32 splat_i32(int32_t x) {
  return {vdupq_n_s32(x)};
}
SLUICE_INLINE void store(int32_t* p, I32 a) {
  vst1q_s32(p, a.v);
}
SLUICE_INLINE I32 operator+(I32 a, I32 b) {
  return {vaddq_s32(a.v, b.v)};
}
SLUICE_INLINE I32 operator-(I32 a, I32 b) {
  return {vsubq_s32(a.v, b.v)};
}
template <int kBits>
SLUICE_INLINE I32 shl(I32 a) {
  return {vshlq_n_s32(a.v, kBits)};
}
SLUICE_INLINE F32 to_f32(I32 a) {
  return {vcvtq_f32_s32(a.v)};
}
SLUICE_INLINE F32 round(F32 a) {
  return {vrndnq_f32(a.v)};
}
SLUICE_INLINE I32 round_i32(F32 a) {
  return {vcvtnq_s32_f32(a.v)};
}
SLUICE_INLINE F32 as_f32(I32 a) {
  return {vreinterpretq_f32_s32(a.v)};
}
SLUICE_INLINE I32 as_i32(F32 a) {
  return {vreinterpretq_s32_f32(a.v)};
}

SLUICE_INLINE F32 load_f16(const void* p) {
  uint16_t bits[kLanes];
  memcpy(bits, p, sizeof bits);
  return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(bits)))};
}
SLUICE_INLINE F32 load_scale(const void* p) {
  return load_f16(p);
}
SLUICE_INLINE F32 load_super(const void* p) {
  return load_f16(p);
}
SLUICE_INLINE void store_f16(void* p, F32 a) {
  uint16_t bits[kLanes];
  vst1_u16(bits, vreinterpret_u16_f16(vcvt_f16_f32(a.v)));
  memcpy(p, bits, sizeof bits);
}
SLUICE_INLINE F32 load_bf16(const void* p) {
  uint16_t bits[kLanes];
  memcpy(bits, p, sizeof bits);
  return {vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(bits), 16))};
}
SLUICE_INLINE uint8x8_t load_4_bytes(const uint8_t* p) {
  uint32_t four;
  memcpy(&four, p, sizeof four);
  return vcreate_u8(four);
}
template <int kShift, int kMask>
SLUICE_INLINE F32 load_bits(const uint8_t* p) {
  uint8x8_t bytes = load_4_bytes(p);
  if constexpr (kShift != 0) bytes = vshr_n_u8(bytes, kShift);
  if constexpr ((0xff >> kShift) != kMask) bytes = vand_u8(bytes, vdup_n_u8(kMask));
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))))};
}
template <int kShift>
SLUICE_INLINE F32 load_entries(const int8_t* table, const uint8_t* p) {
  uint8x8_t codes = load_4_bytes(p);
  if constexpr (kShift == 0) codes = vand_u8(codes, vdup_n_u8(15));
  if constexpr (kShift == 4) codes = vshr_n_u8(codes, 4);
  const int8x8_t entries = vqtbl1_s8(vld1q_s8(table), codes);
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(entries))))};
}
SLUICE_INLINE F32 load_s8(const uint8_t* p) {
  const int8x8_t bytes = vreinterpret_s8_u8(load_4_bytes(p));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))};
}

SLUICE_INLINE Bytes load_bytes(const uint8_t* p) {
  return {vld1q_u8(p)};
}
SLUICE_INLINE void store_bytes(uint8_t* p, Bytes a) {
  vst1q_u8(p, a.v);
}
SLUICE_INLINE Bytes operator|(Bytes a, Bytes b) {
  return {vorrq_u8(a.v, b.v)};
}
template <int kShift, int kMask>
SLUICE_INLINE Bytes bits(Bytes a) {
  static_assert(kShift >= 0 ? (kMask << kShift) <= 0xff : (kMask & ((1 << -kShift) - 1)) == 0);
  uint8x16_t shifted = a.v;
  if constexpr (kShift > 0) shifted = vshrq_n_u8(a.v, kShift);
  if constexpr (kShift < 0) shifted = vshlq_n_u8(a.v, -kShift);
  return {vandq_u8(shifted, vdupq_n_u8(kMask))};
}
SLUICE_INLINE Bytes lookup16(const int8_t* table, Bytes a) {
  return {vqtbl1q_u8(vreinterpretq_u8_s8(vld1q_s8(table)), a.v)};
}

using ActBlock = ActBlock8;
struct Quad {
  int8x16_t v;
};
SLUICE_INLINE Quad load_quad(const ActBlock& x, int j) {
  int32_t four;
  memcpy(&four, x.q + 4 * j, sizeof four);
  return {vreinterpretq_s8_s32(vdupq_n_s32(four))};
}
SLUICE_INLINE Quad load_row(const ActBlock& x, int half) {
  return {vld1q_s8(x.q + 16 * half)};
}
struct Codes {
  int8x16_t v;
};
SLUICE_INLINE Codes prepare(Bytes a) {
  return {vreinterpretq_s8_u8(a.v)};
}
struct I16 {
  int16x8_t v;
};
SLUICE_INLINE I16 load_u8_pairs(const uint8_t* p) {
  return {vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p)))};
}
SLUICE_INLINE I16 splat_pair(int32_t pair) {
  return {vreinterpretq_s16_s32(vdupq_n_s32(pair))};
}
SLUICE_INLINE I32 pair_dot(I16 a, I16 b) {
  const int32x4_t low = vmull_s16(vget_low_s16(a.v), vget_low_s16(b.v));
  return {vpaddq_s32(low, vmull_high_s16(a.v, b.v))};
}

SLUICE_INLINE I32 dot(I32 sum, const Codes& w, Quad x) {
#if defined(__ARM_FEATURE_DOTPROD)
  return {vdotq_s32(sum.v, w.v, x.v)};
#else
  // Two products fit in 16 bits: codes reach -128, activations only +-127.
  const int16x8_t low = vmull_s8(vget_low_s8(w.v), vget_low_s8(x.v));
  const int16x8_t high = vmull_high_s8(w.v, x.v);
  return {vpadalq_s16(sum.v, vpaddq_s16(low, high))};
#endif
}

#define SLUICE_SIGNED_DOTS 1  // dot() takes signed codes
using SignedQuad = Quad;
using SignedCodes = Codes;
SLUICE_INLINE SignedQuad load_signed_quad(const ActBlock& x, int j) {
  return load_quad(x, j);
}
SLUICE_INLINE SignedQuad load_signed_row(const ActBlock& x, int half) {
  return load_row(x, half);
}
SLUICE_INLINE SignedCodes prepare_signed(Bytes a) {
  return prepare(a);
}
SLUICE_INLINE I32 signed_offset(const int32_t&) {
  return splat_i32(0);
}
SLUICE_INLINE I32 dot_signed(I32 sum, const SignedCodes& w, SignedQuad x) {
  return dot(sum, w, x);
}

SLUICE_INLINE void prefetch(const void* p) {
  __builtin_prefetch(p);
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET

#include "kernels/isa/plain_factor.h"
#include "kernels/isa/plain_values.h"
#include "kernels/isa/whole_sum.h"
// Included last, because it uses the sums:
// clang-format off
#include "kernels/isa/four_lanes.h"
