// SIMD operations for AVX-512 with VNNI: sixteen rows per vector, and one vpdpbusd for 64
// multiplications. Codes are the unsigned operand, so signed codes are stored as w + 128 and the
// sum starts at -128 * sum(x). Everything is exact in 32 bits.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels/isa/act_block.h"
#include "kernels/isa/native_order.h"
#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kLanes = 16;
constexpr int kRowGroup = 16;
constexpr int kTokenTile = 8, kTileVecs = 1;
constexpr bool kWideSupers = false;
constexpr const char* kTargetName = "avx512vnni";

struct F32 {
  __m512 v;
};
struct I32 {
  __m512i v;
};
struct Mask {
  __mmask16 v;
};
struct Bytes {
  __m512i v;
};

SLUICE_INLINE F32 splat(float x) {
  return {_mm512_set1_ps(x)};
}
SLUICE_INLINE F32 load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
SLUICE_INLINE void store(float* p, F32 a) {
  _mm512_storeu_ps(p, a.v);
}
SLUICE_INLINE __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1);
}
SLUICE_INLINE F32 load_n(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
SLUICE_INLINE void store_n(float* p, F32 a, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), a.v);
}
SLUICE_INLINE F32 operator+(F32 a, F32 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
SLUICE_INLINE F32 operator-(F32 a, F32 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
SLUICE_INLINE F32 operator*(F32 a, F32 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
SLUICE_INLINE F32 operator/(F32 a, F32 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
SLUICE_INLINE F32 mul_add(F32 a, F32 b, F32 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
SLUICE_INLINE F32 neg_mul_add(F32 a, F32 b, F32 c) {
  return {_mm512_fnmadd_ps(a.v, b.v, c.v)};
}
SLUICE_INLINE F32 min(F32 a, F32 b) {
  return {_mm512_min_ps(a.v, b.v)};
}
SLUICE_INLINE F32 max(F32 a, F32 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
SLUICE_INLINE F32 abs(F32 a) {
  return {_mm512_abs_ps(a.v)};
}
SLUICE_INLINE F32 sqrt(F32 a) {
  return {_mm512_sqrt_ps(a.v)};
}
SLUICE_INLINE float reduce_add(F32 a) {
  return _mm512_reduce_add_ps(a.v);
}
SLUICE_INLINE float reduce_max(F32 a) {
  return _mm512_reduce_max_ps(a.v);
}
SLUICE_INLINE Mask operator<(F32 a, F32 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
SLUICE_INLINE F32 select(Mask m, F32 a, F32 b) {
  return {_mm512_mask_blend_ps(m.v, b.v, a.v)};
}

SLUICE_INLINE I32 splat_i32(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
SLUICE_INLINE void store(int32_t* p, I32 a) {
  _mm512_storeu_si512(p, a.v);
}
SLUICE_INLINE I32 operator+(I32 a, I32 b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
SLUICE_INLINE I32 operator-(I32 a, I32 b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
template <int kBits>
SLUICE_INLINE I32 shl(I32 a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
SLUICE_INLINE F32 to_f32(I32 a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
SLUICE_INLINE F32 round(F32 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
SLUICE_INLINE I32 round_i32(F32 a) {
  return {_mm512_cvtps_epi32(a.v)};
}
SLUICE_INLINE F32 as_f32(I32 a) {
  return {_mm512_castsi512_ps(a.v)};
}
SLUICE_INLINE I32 as_i32(F32 a) {
  return {_mm512_castps_si512(a.v)};
}

SLUICE_INLINE F32 load_f16(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
SLUICE_INLINE F32 load_scale(const void* p) {
  return load_f16(p);
}
SLUICE_INLINE F32 load_super(const void* p) {
  return load_f16(p);
}
SLUICE_INLINE void store_f16(void* p, F32 a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SLUICE_INLINE F32 load_bf16(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
SLUICE_INLINE __m128i load_16_bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
// The word goes to the upper half of each lane.
SLUICE_INLINE F32 splat_bf16(const uint8_t* p) {
  return {_mm512_castsi512_ps(_mm512_maskz_broadcastw_epi16(0xaaaaaaaau, _mm_loadu_si16(p)))};
}
template <int kShift, int kMask>
SLUICE_INLINE F32 load_bits(const uint8_t* p) {
  __m512i wide = _mm512_cvtepu8_epi32(load_16_bytes(p));
  if constexpr (kShift != 0) wide = _mm512_srli_epi32(wide, kShift);
  if constexpr ((0xff >> kShift) != kMask) wide = _mm512_and_si512(wide, _mm512_set1_epi32(kMask));
  return {_mm512_cvtepi32_ps(wide)};
}
template <int kShift>
SLUICE_INLINE F32 look_up(F32 table, const uint8_t* p) {
  __m512i wide = _mm512_cvtepu8_epi32(load_16_bytes(p));
  if constexpr (kShift != 0) wide = _mm512_srli_epi32(wide, kShift);
  return {_mm512_permutexvar_ps(wide, table.v)};
}
SLUICE_INLINE F32 load_s8(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(p)))};
}

SLUICE_INLINE Bytes load_bytes(const uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
SLUICE_INLINE void store_bytes(uint8_t* p, Bytes a) {
  _mm512_storeu_si512(p, a.v);
}
SLUICE_INLINE Bytes operator|(Bytes a, Bytes b) {
  return {_mm512_or_si512(a.v, b.v)};
}
template <int kShift, int kMask>
SLUICE_INLINE Bytes bits(Bytes a) {
  static_assert(kShift >= 0 ? (kMask << kShift) <= 0xff : (kMask & ((1 << -kShift) - 1)) == 0);
  const __m512i shifted = kShift == 0  ? a.v
                          : kShift > 0 ? _mm512_srli_epi16(a.v, kShift & 7)
                                       : _mm512_slli_epi16(a.v, -kShift & 7);
  return {_mm512_and_si512(shifted, _mm512_set1_epi8(static_cast<char>(kMask)))};
}
SLUICE_INLINE Bytes lookup16(const int8_t* table, Bytes a) {
  const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), a.v)};
}

// Negates the bytes whose byte of `chosen` is not zero.
#define SLUICE_BYTE_MASKS 1
SLUICE_INLINE Bytes negate_where(Bytes a, Bytes chosen) {
  const __mmask64 mask = _mm512_test_epi8_mask(chosen.v, chosen.v);
  return {_mm512_mask_sub_epi8(a.v, mask, _mm512_setzero_si512(), a.v)};
}

using ActBlock = ActBlock8;
using Quad = I32;
SLUICE_INLINE Quad load_quad(const ActBlock& x, int j) {
  int32_t four;
  memcpy(&four, x.q + 4 * j, 4);
  return splat_i32(four);
}
using Codes = Bytes;
SLUICE_INLINE Codes prepare(Bytes a) {
  return a;
}

struct I16 {
  __m512i v;
};
SLUICE_INLINE I16 load_u8_pairs(const uint8_t* p) {
  return {_mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
SLUICE_INLINE I16 splat_pair(int32_t pair) {
  return {_mm512_set1_epi32(pair)};
}
SLUICE_INLINE I32 pair_dot(I16 a, I16 b) {
  return {_mm512_madd_epi16(a.v, b.v)};
}

SLUICE_INLINE I32 dot(I32 sum, const Codes& w, Quad x) {
  return {_mm512_dpbusd_epi32(sum.v, w.v, x.v)};
}

using SignedQuad = Quad;
using SignedCodes = Bytes;
SLUICE_INLINE SignedQuad load_signed_quad(const ActBlock& x, int j) {
  return load_quad(x, j);
}
SLUICE_INLINE SignedCodes prepare_signed(Bytes a) {
  return {_mm512_xor_si512(a.v, _mm512_set1_epi8(static_cast<char>(0x80)))};
}
SLUICE_INLINE I32 signed_offset(const int32_t& nsum) {
  return shl<7>(splat_i32(nsum));
}
SLUICE_INLINE I32 dot_signed(I32 sum, const SignedCodes& w, SignedQuad x) {
  return dot(sum, w, x);
}

// Volatile: otherwise compilers gather the prefetches in one place, and a burst gains only half.
SLUICE_INLINE void prefetch(const void* p) {
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
}

// Adds halves of two vectors at a time, then quarters of the results, and so on.
SLUICE_INLINE F32 reduce_add_each(const F32 (&m)[kLanes]) {
  __m512 s[4];
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(m[i].v, m[i + 4].v, 0x44),
                                   _mm512_shuffle_f32x4(m[i].v, m[i + 4].v, 0xee));
    const __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(m[i + 8].v, m[i + 12].v, 0x44),
                                   _mm512_shuffle_f32x4(m[i + 8].v, m[i + 12].v, 0xee));
    s[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(s[0], s[1]), _mm512_unpackhi_ps(s[0], s[1]));
  const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(s[2], s[3]), _mm512_unpackhi_ps(s[2], s[3]));
  return {_mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee))};
}

// Transposes 16 bytes of each row: dword i of row r goes to lane r of out[i].
SLUICE_INLINE void transpose_rows(const uint8_t* const (&rows)[kLanes], Bytes (&out)[4]) {
  __m512i m[4];  // rows i, i + 4, i + 8 and i + 12
  SLUICE_UNROLL for (int i = 0; i < 4; ++i) {
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(rows[i])),
                                                load_16_bytes(rows[i + 4]), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(rows[i + 8])),
                                                 load_16_bytes(rows[i + 12]), 1);
    m[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  const __m512i ab = _mm512_unpacklo_epi32(m[0], m[1]), ab2 = _mm512_unpackhi_epi32(m[0], m[1]);
  const __m512i cd = _mm512_unpacklo_epi32(m[2], m[3]), cd2 = _mm512_unpackhi_epi32(m[2], m[3]);
  out[0].v = _mm512_unpacklo_epi64(ab, cd);
  out[1].v = _mm512_unpackhi_epi64(ab, cd);
  out[2].v = _mm512_unpacklo_epi64(ab2, cd2);
  out[3].v = _mm512_unpackhi_epi64(ab2, cd2);
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET

#include "kernels/isa/plain_factor.h"
#include "kernels/isa/plain_values.h"
#include "kernels/isa/whole_sum.h"
#include "kernels/isa/wide_lanes.h"
