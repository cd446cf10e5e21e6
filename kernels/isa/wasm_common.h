// SIMD operations shared by both WebAssembly targets: everything but fused arithmetic, table lookup
// and dot products. Four lanes; a row group is two vectors, so one splat of activations serves
// eight rows.
#pragma once

#include <string.h>
#include <wasm_simd128.h>

#include "kernels/isa/act_block.h"
#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kLanes = 4;
constexpr int kRowGroup = 8;
constexpr int kTokenTile = 4, kTileVecs = 2;
constexpr bool kWideSupers = true;  // subnormal f16 are common here and take ten more steps

struct F32 {
  v128_t v;
};
struct I32 {
  v128_t v;
};
struct Mask {
  v128_t v;
};
struct Bytes {
  v128_t v;
};

// Engines rebuild a vector constant, in three instructions, wherever it is used. A constant in
// memory that no compiler sees through is loaded, or stays in a register.
SLUICE_INLINE v128_t opaque(const void* constant) {
  asm("" : "+r"(constant));
  return wasm_v128_load(constant);
}
// Returns p, hidden from both compilers. So what is loaded from here is not kept from an earlier
// part of a block, which would take registers from the sums.
inline constexpr int32_t kZeros[4] = {};
template <int kPart>
SLUICE_INLINE const uint8_t* again(const uint8_t* p) {
  const int32_t* zero = &kZeros[kPart];
  asm("" : "+r"(zero));
  return kPart == 0 ? p : p + *zero;
}
// Returns p and hides how it was computed: what follows is read at constant offsets, which cost
// loads nothing.
SLUICE_INLINE const uint8_t* anchor(const uint8_t* p) {
  asm("" : "+r"(p));
  return p;
}
template <int kByte>
struct Repeated {
  static constexpr int8_t b = static_cast<int8_t>(kByte);
  alignas(16) static constexpr int8_t bytes[16] = {b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b};
};

SLUICE_INLINE F32 splat(float x) {
  return {wasm_f32x4_splat(x)};
}
SLUICE_INLINE F32 load(const float* p) {
  return {wasm_v128_load(p)};
}
SLUICE_INLINE void store(float* p, F32 a) {
  wasm_v128_store(p, a.v);
}
SLUICE_INLINE F32 operator+(F32 a, F32 b) {
  return {wasm_f32x4_add(a.v, b.v)};
}
SLUICE_INLINE F32 operator-(F32 a, F32 b) {
  return {wasm_f32x4_sub(a.v, b.v)};
}
SLUICE_INLINE F32 operator*(F32 a, F32 b) {
  return {wasm_f32x4_mul(a.v, b.v)};
}
SLUICE_INLINE F32 operator/(F32 a, F32 b) {
  return {wasm_f32x4_div(a.v, b.v)};
}
// pmin(x, y) is y < x ? y : x: operands are swapped to return the second if either is NaN.
SLUICE_INLINE F32 min(F32 a, F32 b) {
  return {wasm_f32x4_pmin(b.v, a.v)};
}
SLUICE_INLINE F32 max(F32 a, F32 b) {
  return {wasm_f32x4_pmax(b.v, a.v)};
}
SLUICE_INLINE F32 abs(F32 a) {
  return {wasm_f32x4_abs(a.v)};
}
SLUICE_INLINE F32 sqrt(F32 a) {
  return {wasm_f32x4_sqrt(a.v)};
}
SLUICE_INLINE float reduce_add(F32 a) {
  const v128_t x = wasm_f32x4_add(a.v, wasm_i32x4_shuffle(a.v, a.v, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(x, 0) + wasm_f32x4_extract_lane(x, 1);
}
SLUICE_INLINE float reduce_max(F32 a) {
  const v128_t x = wasm_f32x4_pmax(a.v, wasm_i32x4_shuffle(a.v, a.v, 2, 3, 0, 1));
  const v128_t y = wasm_f32x4_pmax(x, wasm_i32x4_shuffle(x, x, 1, 0, 3, 2));
  return wasm_f32x4_extract_lane(y, 0);
}
SLUICE_INLINE Mask operator<(F32 a, F32 b) {
  return {wasm_f32x4_lt(a.v, b.v)};
}
SLUICE_INLINE F32 select(Mask m, F32 a, F32 b) {
  return {wasm_v128_bitselect(a.v, b.v, m.v)};
}

// Lane i is the sum of the lanes of m[i], all added in the same order.
SLUICE_INLINE F32 reduce_add_each(const F32 (&m)[kLanes]) {
  const v128_t a = wasm_i32x4_shuffle(m[0].v, m[1].v, 0, 4, 1, 5);
  const v128_t b = wasm_i32x4_shuffle(m[0].v, m[1].v, 2, 6, 3, 7);
  const v128_t c = wasm_i32x4_shuffle(m[2].v, m[3].v, 0, 4, 1, 5);
  const v128_t d = wasm_i32x4_shuffle(m[2].v, m[3].v, 2, 6, 3, 7);
  const F32 even = {wasm_i64x2_shuffle(a, c, 0, 2)}, odd = {wasm_i64x2_shuffle(a, c, 1, 3)};
  const F32 even2 = {wasm_i64x2_shuffle(b, d, 0, 2)}, odd2 = {wasm_i64x2_shuffle(b, d, 1, 3)};
  return (even + even2) + (odd + odd2);
}

SLUICE_INLINE I32 splat_i32(int32_t x) {
  return {wasm_i32x4_splat(x)};
}
SLUICE_INLINE void store(int32_t* p, I32 a) {
  wasm_v128_store(p, a.v);
}
SLUICE_INLINE I32 operator+(I32 a, I32 b) {
  return {wasm_i32x4_add(a.v, b.v)};
}
SLUICE_INLINE I32 operator-(I32 a, I32 b) {
  return {wasm_i32x4_sub(a.v, b.v)};
}
SLUICE_INLINE I32 operator*(I32 a, I32 b) {
  return {wasm_i32x4_mul(a.v, b.v)};
}
// Without this the compiler shifts before it splats, and the splat is no longer part of a load.
SLUICE_INLINE void keep(I32& a) {
  asm volatile("" : "+r"(a.v));
}
template <int kBits>
SLUICE_INLINE I32 shl(I32 a) {
  keep(a);
  return {wasm_i32x4_shl(a.v, kBits)};
}
template <int kBits>
SLUICE_INLINE I32 shr(I32 a) {
  return {wasm_i32x4_shr(a.v, kBits)};
}
SLUICE_INLINE F32 to_f32(I32 a) {
  return {wasm_f32x4_convert_i32x4(a.v)};
}
SLUICE_INLINE F32 round(F32 a) {
  return {wasm_f32x4_nearest(a.v)};
}
SLUICE_INLINE I32 round_i32(F32 a) {
  return {wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(a.v))};
}
SLUICE_INLINE F32 as_f32(I32 a) {
  return {a.v};
}
SLUICE_INLINE I32 as_i32(F32 a) {
  return {a.v};
}

// Sign extension puts the sign where f32 has it. The multiplication rebiases the exponent and
// corrects subnormals.
SLUICE_INLINE F32 load_scale(const void* p) {
  static constexpr uint32_t kKept[4] = {0x8fffe000, 0x8fffe000, 0x8fffe000, 0x8fffe000};
  static constexpr float kRebias[4] = {0x1p112f, 0x1p112f, 0x1p112f, 0x1p112f};
  const v128_t bits = wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13);
  return {wasm_f32x4_mul(wasm_v128_and(bits, opaque(kKept)), opaque(kRebias))};
}
SLUICE_INLINE F32 load_super(const void* p) {
  return {wasm_v128_load(p)};
}
SLUICE_INLINE F32 load_f16(const void* p) {
  const v128_t finite = load_scale(p).v;
  const v128_t large = wasm_f32x4_ge(wasm_f32x4_abs(finite), wasm_f32x4_const_splat(65536.0f));
  const v128_t exponent = wasm_v128_and(large, wasm_i32x4_const_splat(0x7f800000));
  return {wasm_v128_or(finite, exponent)};
}
SLUICE_INLINE void store_f16(void* p, F32 a) {
  const v128_t sign = wasm_v128_and(a.v, wasm_i32x4_const_splat(static_cast<int>(0x80000000u)));
  const v128_t x = wasm_v128_xor(a.v, sign);
  // Rebias and round to nearest even in the integer. Below 2^-14 adding 0.5 aligns the subnormal;
  // from 2^16 on the result is infinity, or NaN.
  const v128_t odd = wasm_v128_and(wasm_u32x4_shr(x, 13), wasm_i32x4_const_splat(1));
  const v128_t rounded =
      wasm_i32x4_add(wasm_i32x4_add(x, wasm_i32x4_const_splat(static_cast<int>(0xc8000fffu))), odd);
  const v128_t normal = wasm_u32x4_shr(rounded, 13);
  const v128_t small = wasm_i32x4_sub(wasm_f32x4_add(x, wasm_f32x4_const_splat(0.5f)),
                                      wasm_i32x4_const_splat(0x3f000000));
  const v128_t nan = wasm_f32x4_ne(a.v, a.v);
  const v128_t special = wasm_v128_or(wasm_i32x4_const_splat(0x7c00),
                                      wasm_v128_and(nan, wasm_i32x4_const_splat(0x0200)));
  const v128_t is_small = wasm_i32x4_lt(x, wasm_i32x4_const_splat(0x38800000));
  const v128_t is_special = wasm_i32x4_ge(x, wasm_i32x4_const_splat(0x47800000));
  v128_t half = wasm_v128_bitselect(small, normal, is_small);
  half = wasm_v128_bitselect(special, half, is_special);
  half = wasm_v128_or(half, wasm_u32x4_shr(sign, 16));
  const v128_t narrow = wasm_u16x8_narrow_i32x4(half, half);
  wasm_v128_store64_lane(p, narrow, 0);
}
SLUICE_INLINE F32 load_bf16(const void* p) {
  return {wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16)};
}
// A swizzle moves bytes to 32-bit lanes: clang 14 compiles two extensions and a conversion to
// scalar code.
template <int kShift, int kMask>
SLUICE_INLINE F32 load_bits(const uint8_t* p) {
  const v128_t bytes = wasm_v128_load32_zero(p);
  v128_t wide = wasm_i8x16_swizzle(
      bytes, wasm_i8x16_const(0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1));
  if constexpr (kShift != 0) wide = wasm_u32x4_shr(wide, kShift);
  if constexpr ((0xff >> kShift) != kMask) {
    wide = wasm_v128_and(wide, wasm_i32x4_const_splat(kMask));
  }
  return {wasm_f32x4_convert_i32x4(wide)};
}
// Moves a byte to the top of its lane, its code down, its table entry up, and down again with sign.
template <int kShift>
SLUICE_INLINE F32 load_entries(const int8_t* table, const uint8_t* p) {
  v128_t wide = wasm_i8x16_swizzle(
      wasm_v128_load32_zero(p),
      wasm_i8x16_const(-1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3));
  if constexpr (kShift == 0) wide = wasm_i32x4_shl(wide, 4);
  const v128_t entries = wasm_i8x16_swizzle(wasm_v128_load(table), wasm_u32x4_shr(wide, 28));
  return {wasm_f32x4_convert_i32x4(wasm_i32x4_shr(wasm_i32x4_shl(entries, 24), 24))};
}
SLUICE_INLINE F32 load_s8(const uint8_t* p) {
  const v128_t bytes = wasm_v128_load32_zero(p);
  const v128_t top = wasm_i8x16_swizzle(
      bytes, wasm_i8x16_const(-1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3));
  return {wasm_f32x4_convert_i32x4(wasm_i32x4_shr(top, 24))};
}

SLUICE_INLINE Bytes load_bytes(const uint8_t* p) {
  return {wasm_v128_load(p)};
}
SLUICE_INLINE void store_bytes(uint8_t* p, Bytes a) {
  wasm_v128_store(p, a.v);
}
SLUICE_INLINE Bytes operator|(Bytes a, Bytes b) {
  return {wasm_v128_or(a.v, b.v)};
}
template <int kShift, int kMask>
SLUICE_INLINE Bytes bits(Bytes a) {
  static_assert(kShift >= 0 ? (kMask << kShift) <= 0xff : (kMask & ((1 << -kShift) - 1)) == 0);
  const v128_t shifted = kShift == 0  ? a.v
                         : kShift > 0 ? wasm_u16x8_shr(a.v, kShift & 7)
                                      : wasm_i16x8_shl(a.v, -kShift & 7);
  return {wasm_v128_and(shifted, opaque(Repeated<kMask>::bytes))};
}

struct I16 {
  v128_t v;
};
SLUICE_INLINE I16 load_u8_pairs(const uint8_t* p) {
  return {wasm_u16x8_load8x8(p)};
}
SLUICE_INLINE I16 splat_pair(int32_t pair) {
  return {wasm_i32x4_splat(pair)};
}
SLUICE_INLINE I32 pair_dot(I16 a, I16 b) {
  return {wasm_i32x4_dot_i16x8(a.v, b.v)};
}

// Compilers move the computation of a sum to its use, far from its operands, and then the engine
// runs out of registers. These functions keep the order of the source. (wasm-opt needs an option
// too: see web/scripts/build.mjs.)
SLUICE_INLINE void keep_order() {
  asm volatile("" ::: "memory");
}
SLUICE_INLINE void keep(F32& a) {
  asm volatile("" : "+r"(a.v));
}
SLUICE_INLINE void keep(I16& a) {
  asm volatile("" : "+r"(a.v));
}

// Loads activations 16 bytes at a time: a load-and-splat costs engines one instruction for the
// address and one for itself.
SLUICE_INLINE v128_t splat_lane(v128_t a, int lane) {
  switch (lane) {  // a constant once loops are unrolled
    case 0:
      return wasm_i32x4_shuffle(a, a, 0, 0, 0, 0);
    case 1:
      return wasm_i32x4_shuffle(a, a, 1, 1, 1, 1);
    case 2:
      return wasm_i32x4_shuffle(a, a, 2, 2, 2, 2);
    default:
      return wasm_i32x4_shuffle(a, a, 3, 3, 3, 3);
  }
}

// Quantized activations before they are stored in a block.
struct Narrow {
  v128_t v[4];  // 16 bits wide
};
SLUICE_INLINE void store_values(const Narrow& q, ActBlock16& b) {
  SLUICE_UNROLL for (int i = 0; i < 4; ++i) {
    wasm_v128_store(b.q16 + 8 * i, wasm_i16x8_shuffle(q.v[i], q.v[i], 0, 2, 1, 3, 4, 6, 5, 7));
  }
}
SLUICE_INLINE void store_values(const Narrow& q, ActBlock8& b) {
  wasm_v128_store(b.q, wasm_i8x16_narrow_i16x8(q.v[0], q.v[1]));
  wasm_v128_store(b.q + 16, wasm_i8x16_narrow_i16x8(q.v[2], q.v[3]));
}
template <class Block>
SLUICE_INLINE void put_values(const I32 (&q)[kActValues / kLanes], Block& out,
                              int32_t (&sums)[2][2]) {
  Narrow narrow;
  SLUICE_UNROLL for (int i = 0; i < 4; ++i) {
    narrow.v[i] = wasm_i16x8_narrow_i32x4(q[2 * i].v, q[2 * i + 1].v);
  }
  store_values(narrow, out);
  SLUICE_UNROLL for (int h = 0; h < 2; ++h) {
    const v128_t four = ((q[4 * h] + q[4 * h + 1]) + (q[4 * h + 2] + q[4 * h + 3])).v;
    sums[h][0] = wasm_i32x4_extract_lane(four, 0) + wasm_i32x4_extract_lane(four, 1);
    sums[h][1] = wasm_i32x4_extract_lane(four, 2) + wasm_i32x4_extract_lane(four, 3);
  }
}

// Activations in 16-bit pairs, for codes split into even and odd 16-bit lanes.
struct Pairs {
  v128_t even, odd;
};
SLUICE_INLINE Pairs load_pairs(const int16_t* q16, int j) {
  const v128_t two = wasm_v128_load(q16 + 8 * (j / 2));
  return {splat_lane(two, j % 2 * 2), splat_lane(two, j % 2 * 2 + 1)};
}
SLUICE_INLINE Pairs load_row_pairs(const int16_t* q16, int half) {
  const v128_t a = wasm_v128_load(q16 + 16 * half), b = wasm_v128_load(q16 + 16 * half + 8);
  return {wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), wasm_i32x4_shuffle(a, b, 1, 3, 5, 7)};
}
SLUICE_INLINE Pairs split_unsigned(Bytes a) {
  return {wasm_v128_and(a.v, wasm_i16x8_const_splat(0xff)), wasm_u16x8_shr(a.v, 8)};
}
SLUICE_INLINE Pairs split_signed(Bytes a) {
  return {wasm_i16x8_shr(wasm_i16x8_shl(a.v, 8), 8), wasm_i16x8_shr(a.v, 8)};
}
SLUICE_INLINE I32 dot_pairs(I32 sum, const Pairs& w, Pairs x) {
  const v128_t even = wasm_i32x4_dot_i16x8(w.even, x.even);
  return {wasm_i32x4_add(wasm_i32x4_add(sum.v, even), wasm_i32x4_dot_i16x8(w.odd, x.odd))};
}

// Two times eight bytes, four times four bytes.
SLUICE_INLINE Bytes load_qwords(const void* a, const void* b) {
  return {wasm_v128_load64_lane(b, wasm_v128_load64_zero(a), 1)};
}
SLUICE_INLINE Bytes load_dwords(const void* a, const void* b, const void* c, const void* d) {
  const v128_t two = wasm_v128_load32_lane(b, wasm_v128_load32_zero(a), 1);
  return {wasm_v128_load32_lane(d, wasm_v128_load32_lane(c, two, 2), 3)};
}
SLUICE_INLINE Bytes at_most_one(Bytes a) {
  return {wasm_u8x16_min(a.v, opaque(Repeated<1>::bytes))};
}
// a, negated where `negative` has all bits of a byte set.
SLUICE_INLINE Bytes negate_where(Bytes a, Bytes negative) {
  return {wasm_i8x16_sub(wasm_v128_xor(a.v, negative.v), negative.v)};
}

SLUICE_INLINE void prefetch(const void*) {}  // no such instruction

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
