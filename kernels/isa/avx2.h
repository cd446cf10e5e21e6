// SIMD operations for AVX2 with FMA and F16C: eight rows per vector. vpmaddubsw gives 16-bit pair
// sums. Where codes are small enough for a sub-block to fit 16 bits, sums are added there and
// widened once. Signed codes use |w| * (x with w's sign), which cannot saturate because activations
// are within +-127.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels/isa/act_block.h"
#include "kernels/isa/native_order.h"
#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kLanes = 8;
constexpr int kRowGroup = 8;
constexpr int kTokenTile = 4, kTileVecs = 1;
constexpr bool kWideSupers = false;
constexpr const char* kTargetName = "avx2";

struct F32 {
  __m256 v;
};
struct I32 {
  __m256i v;
};
struct Mask {
  __m256 v;
};
struct Bytes {
  __m256i v;
};

SLUICE_INLINE F32 splat(float x) {
  return {_mm256_set1_ps(x)};
}
SLUICE_INLINE F32 load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
SLUICE_INLINE void store(float* p, F32 a) {
  _mm256_storeu_ps(p, a.v);
}
SLUICE_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SLUICE_INLINE F32 load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_lanes(n))};
}
SLUICE_INLINE void store_n(float* p, F32 a, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), a.v);
}
SLUICE_INLINE F32 operator+(F32 a, F32 b) {
  return {_mm256_add_ps(a.v, b.v)};
}
SLUICE_INLINE F32 operator-(F32 a, F32 b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
SLUICE_INLINE F32 operator*(F32 a, F32 b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
SLUICE_INLINE F32 operator/(F32 a, F32 b) {
  return {_mm256_div_ps(a.v, b.v)};
}
SLUICE_INLINE F32 mul_add(F32 a, F32 b, F32 c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
SLUICE_INLINE F32 neg_mul_add(F32 a, F32 b, F32 c) {
  return {_mm256_fnmadd_ps(a.v, b.v, c.v)};
}
SLUICE_INLINE F32 min(F32 a, F32 b) {
  return {_mm256_min_ps(a.v, b.v)};
}
SLUICE_INLINE F32 max(F32 a, F32 b) {
  return {_mm256_max_ps(a.v, b.v)};
}
SLUICE_INLINE F32 abs(F32 a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)};
}
SLUICE_INLINE F32 sqrt(F32 a) {
  return {_mm256_sqrt_ps(a.v)};
}
SLUICE_INLINE float reduce_add(F32 a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
SLUICE_INLINE float reduce_max(F32 a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
SLUICE_INLINE Mask operator<(F32 a, F32 b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)};
}
SLUICE_INLINE F32 select(Mask m, F32 a, F32 b) {
  return {_mm256_blendv_ps(b.v, a.v, m.v)};
}

SLUICE_INLINE I32 splat_i32(int32_t x) {
  return {_mm256_set1_epi32(x)};
}
SLUICE_INLINE void store(int32_t* p, I32 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
}
SLUICE_INLINE I32 operator+(I32 a, I32 b) {
  return {_mm256_add_epi32(a.v, b.v)};
}
SLUICE_INLINE I32 operator-(I32 a, I32 b) {
  return {_mm256_sub_epi32(a.v, b.v)};
}
SLUICE_INLINE I32 operator*(I32 a, I32 b) {
  return {_mm256_mullo_epi32(a.v, b.v)};
}
template <int kBits>
SLUICE_INLINE I32 shl(I32 a) {
  return {_mm256_slli_epi32(a.v, kBits)};
}
SLUICE_INLINE F32 to_f32(I32 a) {
  return {_mm256_cvtepi32_ps(a.v)};
}
SLUICE_INLINE F32 round(F32 a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
SLUICE_INLINE I32 round_i32(F32 a) {
  return {_mm256_cvtps_epi32(a.v)};
}
SLUICE_INLINE F32 as_f32(I32 a) {
  return {_mm256_castsi256_ps(a.v)};
}
SLUICE_INLINE I32 as_i32(F32 a) {
  return {_mm256_castps_si256(a.v)};
}

SLUICE_INLINE F32 load_f16(const void* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
SLUICE_INLINE F32 load_scale(const void* p) {
  return load_f16(p);
}
SLUICE_INLINE F32 load_super(const void* p) {
  return load_f16(p);
}
SLUICE_INLINE void store_f16(void* p, F32 a) {
  _mm_storeu_si128(static_cast<__m128i*>(p),
                   _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SLUICE_INLINE F32 load_bf16(const void* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}
SLUICE_INLINE __m128i load_8_bytes(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
SLUICE_INLINE F32 splat_bf16(const uint8_t* p) {
  const __m256i words = _mm256_broadcastw_epi16(_mm_loadu_si16(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(words, 16))};
}
template <int kShift, int kMask>
SLUICE_INLINE F32 load_bits(const uint8_t* p) {
  __m256i wide = _mm256_cvtepu8_epi32(load_8_bytes(p));
  if constexpr (kShift != 0) wide = _mm256_srli_epi32(wide, kShift);
  if constexpr ((0xff >> kShift) != kMask) wide = _mm256_and_si256(wide, _mm256_set1_epi32(kMask));
  return {_mm256_cvtepi32_ps(wide)};
}
template <int kShift>
SLUICE_INLINE F32 look_up(F32 table, const uint8_t* p) {
  __m256i wide = _mm256_cvtepu8_epi32(load_8_bytes(p));
  if constexpr (kShift != 0) wide = _mm256_srli_epi32(wide, kShift);
  return {_mm256_permutevar8x32_ps(table.v, wide)};
}
template <int kShift>
SLUICE_INLINE F32 load_entries(const int8_t* table, const uint8_t* p) {
  const __m128i bytes = kShift == 0 ? load_8_bytes(p) : _mm_srli_epi16(load_8_bytes(p), 4);
  const __m128i entries = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)),
                                           _mm_and_si128(bytes, _mm_set1_epi8(15)));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(entries))};
}
SLUICE_INLINE F32 load_s8(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(p)))};
}

SLUICE_INLINE Bytes load_bytes(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
SLUICE_INLINE void store_bytes(uint8_t* p, Bytes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
}
SLUICE_INLINE Bytes operator|(Bytes a, Bytes b) {
  return {_mm256_or_si256(a.v, b.v)};
}
template <int kShift, int kMask>
SLUICE_INLINE Bytes bits(Bytes a) {
  static_assert(kShift >= 0 ? (kMask << kShift) <= 0xff : (kMask & ((1 << -kShift) - 1)) == 0);
  const __m256i shifted = kShift == 0  ? a.v
                          : kShift > 0 ? _mm256_srli_epi16(a.v, kShift & 7)
                                       : _mm256_slli_epi16(a.v, -kShift & 7);
  return {_mm256_and_si256(shifted, _mm256_set1_epi8(static_cast<char>(kMask)))};
}
SLUICE_INLINE Bytes lookup16(const int8_t* table, Bytes a) {
  const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), a.v)};
}

using ActBlock = ActBlock8;
using Quad = Bytes;
SLUICE_INLINE Quad load_quad(const ActBlock& x, int j) {
  int32_t four;
  memcpy(&four, x.q + 4 * j, 4);
  return {_mm256_set1_epi32(four)};
}
using Codes = Bytes;
SLUICE_INLINE Codes prepare(Bytes a) {
  return a;
}

struct I16 {
  __m256i v;
};
SLUICE_INLINE I16 load_u8_pairs(const uint8_t* p) {
  return {_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
SLUICE_INLINE I16 splat_pair(int32_t pair) {
  return {_mm256_set1_epi32(pair)};
}
SLUICE_INLINE I32 pair_dot(I16 a, I16 b) {
  return {_mm256_madd_epi16(a.v, b.v)};
}
SLUICE_INLINE I16 no_pairs() {
  return {_mm256_setzero_si256()};
}
SLUICE_INLINE I16 operator+(I16 a, I16 b) {
  return {_mm256_add_epi16(a.v, b.v)};
}
template <int kBits>
SLUICE_INLINE I16 shl(I16 a) {
  return {_mm256_slli_epi16(a.v, kBits)};
}
SLUICE_INLINE I16 load_factor(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepu8_epi32(load_8_bytes(p));
  return {_mm256_or_si256(wide, _mm256_slli_epi32(wide, 16))};
}
SLUICE_INLINE I16 load_signed_factor(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepi8_epi32(load_8_bytes(p));
  return {_mm256_blend_epi16(wide, _mm256_slli_epi32(wide, 16), 0xaa)};
}
SLUICE_INLINE I16 pair_products(const Codes& w, Quad x) {
  return {_mm256_maddubs_epi16(w.v, x.v)};
}
SLUICE_INLINE I32 widen_pairs(I16 a) {
  return {_mm256_madd_epi16(a.v, _mm256_set1_epi16(1))};
}

struct SignedCodes {
  __m256i magnitude, w;
};
using SignedQuad = Quad;
SLUICE_INLINE SignedQuad load_signed_quad(const ActBlock& x, int j) {
  return load_quad(x, j);
}
SLUICE_INLINE SignedCodes prepare_signed(Bytes a) {
  return {_mm256_abs_epi8(a.v), a.v};
}
SLUICE_INLINE I32 signed_offset(const int32_t&) {
  return splat_i32(0);
}
SLUICE_INLINE I32 dot_signed(I32 sum, const SignedCodes& w, SignedQuad x) {
  return sum + widen_pairs({_mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x.v, w.w))});
}

// Volatile: otherwise compilers gather the prefetches in one place, and a burst gains only half.
SLUICE_INLINE void prefetch(const void* p) {
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
}

// Adds halves of two vectors at a time, then quarters of the results, then pairs.
SLUICE_INLINE F32 reduce_add_each(const F32 (&m)[kLanes]) {
  __m256 s[4];
  for (int i = 0; i < 4; ++i) {
    s[i] = _mm256_add_ps(_mm256_permute2f128_ps(m[i].v, m[i + 4].v, 0x20),
                         _mm256_permute2f128_ps(m[i].v, m[i + 4].v, 0x31));
  }
  const __m256 a = _mm256_add_ps(_mm256_unpacklo_ps(s[0], s[1]), _mm256_unpackhi_ps(s[0], s[1]));
  const __m256 b = _mm256_add_ps(_mm256_unpacklo_ps(s[2], s[3]), _mm256_unpackhi_ps(s[2], s[3]));
  return {_mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee))};
}

SLUICE_INLINE __m128i load_16_bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
// Transposes 16 bytes of each row: dword i of row r goes to lane r of out[i].
SLUICE_INLINE void transpose_rows(const uint8_t* const (&rows)[kLanes], Bytes (&out)[4]) {
  __m256i m[4];  // rows i and i + 4
  SLUICE_UNROLL for (int i = 0; i < 4; ++i) {
    m[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(rows[i])),
                                   load_16_bytes(rows[i + 4]), 1);
  }
  const __m256i ab = _mm256_unpacklo_epi32(m[0], m[1]), ab2 = _mm256_unpackhi_epi32(m[0], m[1]);
  const __m256i cd = _mm256_unpacklo_epi32(m[2], m[3]), cd2 = _mm256_unpackhi_epi32(m[2], m[3]);
  out[0].v = _mm256_unpacklo_epi64(ab, cd);
  out[1].v = _mm256_unpackhi_epi64(ab, cd);
  out[2].v = _mm256_unpacklo_epi64(ab2, cd2);
  out[3].v = _mm256_unpackhi_epi64(ab2, cd2);
}
}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET

#include "kernels/isa/pair_sum.h"
#include "kernels/isa/plain_values.h"
#include "kernels/isa/wide_lanes.h"
