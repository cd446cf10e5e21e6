// SIMD operations for any CPU: four lanes in the compiler's portable vectors, which become SSE2 on
// x86-64 and plain code elsewhere. This file also defines what the operations of other targets
// mean. A target header is included once per translation unit, with SLUICE_TARGET naming the
// namespace. Everything has internal linkage: the linker must never replace a function by one
// compiled for another instruction set.
#pragma once

#include <string.h>

#include "kernels/isa/act_block.h"
#include "kernels/isa/native_order.h"
#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kLanes = 4;     // f32 lanes of a vector
constexpr int kRowGroup = 4;  // rows interleaved in a packed group, a multiple of kLanes
constexpr int kTokenTile = 2, kTileVecs = 1;  // tokens that share a decoded weight vector
constexpr bool kWideSupers = false;           // whether packed super-scales are f32 instead of f16
constexpr const char* kTargetName = "scalar";

typedef float VectorF32 __attribute__((vector_size(16)));
typedef int32_t VectorI32 __attribute__((vector_size(16)));
typedef uint32_t VectorU32 __attribute__((vector_size(16)));
typedef int16_t VectorI16 __attribute__((vector_size(16)));
typedef uint16_t VectorU16 __attribute__((vector_size(16)));
typedef uint8_t VectorU8 __attribute__((vector_size(16)));

struct F32 {
  VectorF32 v;
};
struct I32 {
  VectorI32 v;
};
struct Mask {
  VectorI32 v;
};
// 4 * kLanes bytes: lane i has bytes 4i .. 4i + 3.
struct Bytes {
  VectorU8 v;
};

// --- f32 ---------------------------------------------------------------------------------------
SLUICE_INLINE F32 splat(float x) {
  return {VectorF32{x, x, x, x}};
}
SLUICE_INLINE F32 load(const float* p) {
  F32 r;
  memcpy(&r, p, sizeof r);
  return r;
}
SLUICE_INLINE void store(float* p, F32 a) {
  memcpy(p, &a, sizeof a);
}
SLUICE_INLINE F32 operator+(F32 a, F32 b) {
  return {a.v + b.v};
}
SLUICE_INLINE F32 operator-(F32 a, F32 b) {
  return {a.v - b.v};
}
SLUICE_INLINE F32 operator*(F32 a, F32 b) {
  return {a.v * b.v};
}
SLUICE_INLINE F32 operator/(F32 a, F32 b) {
  return {a.v / b.v};
}
// a * b + c, fused if the target can.
SLUICE_INLINE F32 mul_add(F32 a, F32 b, F32 c) {
  return {a.v * b.v + c.v};
}
// c - a * b.
SLUICE_INLINE F32 neg_mul_add(F32 a, F32 b, F32 c) {
  return {c.v - a.v * b.v};
}
// Returns the second operand if either is NaN.
SLUICE_INLINE F32 min(F32 a, F32 b) {
  return {a.v < b.v ? a.v : b.v};
}
SLUICE_INLINE F32 max(F32 a, F32 b) {
  return {a.v > b.v ? a.v : b.v};
}
SLUICE_INLINE F32 abs(F32 a) {
  return {reinterpret_cast<VectorF32>(reinterpret_cast<VectorI32>(a.v) & 0x7fffffff)};
}
SLUICE_INLINE F32 sqrt(F32 a) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = __builtin_sqrtf(a.v[i]);
  return a;
}
SLUICE_INLINE float reduce_add(F32 a) {
  return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);
}
SLUICE_INLINE float reduce_max(F32 a) {
  float m = a.v[0];
  for (int i = 1; i < kLanes; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}
SLUICE_INLINE Mask operator<(F32 a, F32 b) {
  return {a.v < b.v};
}
// mask ? a : b.
SLUICE_INLINE F32 select(Mask m, F32 a, F32 b) {
  return {m.v ? a.v : b.v};
}

// --- i32 ---------------------------------------------------------------------------------------
SLUICE_INLINE I32 splat_i32(int32_t x) {
  return {VectorI32{x, x, x, x}};
}
SLUICE_INLINE void store(int32_t* p, I32 a) {
  memcpy(p, &a, sizeof a);
}
// These wrap, like the instructions: a block of attention scores contains unused positions.
SLUICE_INLINE I32 operator+(I32 a, I32 b) {
  return {reinterpret_cast<VectorI32>(reinterpret_cast<VectorU32>(a.v) +
                                      reinterpret_cast<VectorU32>(b.v))};
}
SLUICE_INLINE I32 operator-(I32 a, I32 b) {
  return {reinterpret_cast<VectorI32>(reinterpret_cast<VectorU32>(a.v) -
                                      reinterpret_cast<VectorU32>(b.v))};
}
template <int kBits>
SLUICE_INLINE I32 shl(I32 a) {
  return {reinterpret_cast<VectorI32>(reinterpret_cast<VectorU32>(a.v) << kBits)};
}
SLUICE_INLINE F32 to_f32(I32 a) {
  return {__builtin_convertvector(a.v, VectorF32)};
}
SLUICE_INLINE F32 as_f32(I32 a) {
  return {reinterpret_cast<VectorF32>(a.v)};
}
SLUICE_INLINE I32 as_i32(F32 a) {
  return {reinterpret_cast<VectorI32>(a.v)};
}
// Rounds to nearest, ties to even; unspecified outside +-2^22 and for NaN.
SLUICE_INLINE I32 round_i32(F32 a) {
  // 1.5 * 2^23: the low bits of the sum are the rounded integer.
  return {reinterpret_cast<VectorI32>(a.v + 12582912.0f) - 0x4B400000};
}
// Rounds to an integer, ties to even; |a| < 2^22.
SLUICE_INLINE F32 round(F32 a) {
  return to_f32(round_i32(a));
}

// --- conversions on load and store ---------------------------------------------------------------
SLUICE_INLINE float f16_value(uint16_t h) {
  // Shift into f32's fields, then multiply by 2^112 to rebias the exponent. Subnormals come out
  // right; infinities and NaN get their exponent patched.
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(h & 0x7fffu) << 13;
  float f;
  memcpy(&f, &shifted, sizeof f);
  f *= 0x1p112f;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  bits |= sign | (shifted >= 0x0f800000u ? 0x7f800000u : 0u);
  memcpy(&f, &bits, sizeof f);
  return f;
}
SLUICE_INLINE uint16_t f16_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits >= 0x47800000u) {  // 2^16 and above: infinity or NaN
    return static_cast<uint16_t>(sign | (bits > 0x7f800000u ? 0x7e00u : 0x7c00u));
  }
  if (bits < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the subnormal in the low bits
    float f;
    memcpy(&f, &bits, sizeof f);
    f += 0.5f;
    memcpy(&bits, &f, sizeof bits);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  bits += 0xc8000fffu + ((bits >> 13) & 1u);  // rebias, round to nearest even
  return static_cast<uint16_t>(sign | (bits >> 13));
}
SLUICE_INLINE F32 load_f16(const void* p) {
  uint16_t h[kLanes];
  memcpy(h, p, sizeof h);
  return {VectorF32{f16_value(h[0]), f16_value(h[1]), f16_value(h[2]), f16_value(h[3])}};
}
// load_f16 for finite values.
SLUICE_INLINE F32 load_scale(const void* p) {
  return load_f16(p);
}
// The scale of a K-quant block (a scale of scales), in its packed format.
SLUICE_INLINE F32 load_super(const void* p) {
  return load_f16(p);
}
SLUICE_INLINE void store_f16(void* p, F32 a) {
  uint16_t h[kLanes];
  for (int i = 0; i < kLanes; ++i) h[i] = f16_bits(a.v[i]);
  memcpy(p, h, sizeof h);
}
SLUICE_INLINE F32 load_bf16(const void* p) {
  uint16_t h[kLanes];
  memcpy(h, p, sizeof h);
  const VectorU32 wide = {h[0], h[1], h[2], h[3]};
  return {reinterpret_cast<VectorF32>(wide << 16)};
}
// Loads kLanes bytes, each as (byte >> kShift) & kMask.
template <int kShift, int kMask>
SLUICE_INLINE F32 load_bits(const uint8_t* p) {
  const VectorI32 wide = {p[0], p[1], p[2], p[3]};
  return to_f32({(wide >> kShift) & kMask});
}
// table[(byte >> kShift) & 15] for kLanes bytes.
template <int kShift>
SLUICE_INLINE F32 load_entries(const int8_t* table, const uint8_t* p) {
  int32_t e[kLanes];
  for (int i = 0; i < kLanes; ++i) e[i] = table[p[i] >> kShift & 15];
  return to_f32({VectorI32{e[0], e[1], e[2], e[3]}});
}
SLUICE_INLINE F32 load_s8(const uint8_t* p) {
  int8_t s[kLanes];
  memcpy(s, p, sizeof s);
  return to_f32({VectorI32{s[0], s[1], s[2], s[3]}});
}

// --- bytes ---------------------------------------------------------------------------------------
SLUICE_INLINE Bytes load_bytes(const uint8_t* p) {
  Bytes r;
  memcpy(&r, p, sizeof r);
  return r;
}
SLUICE_INLINE void store_bytes(uint8_t* p, Bytes a) {
  memcpy(p, &a, sizeof a);
}
SLUICE_INLINE Bytes operator|(Bytes a, Bytes b) {
  return {a.v | b.v};
}
// ((a >> kShift) & kMask) in every byte; for kShift < 0 ((a << -kShift) & kMask). The mask clears
// the bits that a wider shift moves in from the neighbouring byte.
template <int kShift, int kMask>
SLUICE_INLINE Bytes bits(Bytes a) {
  static_assert(kShift >= 0 ? (kMask << kShift) <= 0xff : (kMask & ((1 << -kShift) - 1)) == 0);
  const VectorU16 wide = reinterpret_cast<VectorU16>(a.v);
  const VectorU16 shifted = kShift >= 0 ? wide >> (kShift & 7) : wide << (-kShift & 7);
  return {reinterpret_cast<VectorU8>(shifted) & static_cast<uint8_t>(kMask)};
}
// table[a] in every byte, a < 16.
SLUICE_INLINE Bytes lookup16(const int8_t* table, Bytes a) {
  for (int i = 0; i < 4 * kLanes; ++i) a.v[i] = static_cast<uint8_t>(table[a.v[i]]);
  return a;
}

// --- integer dot products ------------------------------------------------------------------------
// Two 16-bit integers per lane: 2 * kLanes bytes, or one pair for all lanes.
struct I16 {
  VectorI16 v;
};
SLUICE_INLINE I16 load_u8_pairs(const uint8_t* p) {
  return {VectorI16{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]}};
}
SLUICE_INLINE I16 splat_pair(int32_t pair) {
  return {reinterpret_cast<VectorI16>(splat_i32(pair).v)};
}
// The sum of a lane's two products.
SLUICE_INLINE I32 pair_dot(I16 a, I16 b) {
  const VectorI32 u = reinterpret_cast<VectorI32>(a.v), w = reinterpret_cast<VectorI32>(b.v);
  const VectorI32 low = (shl<16>({u}).v >> 16) * (shl<16>({w}).v >> 16);
  return {low + (u >> 16) * (w >> 16)};
}

// Weights are prepared once and used for many tokens. Unsigned codes are 0..127, signed -128..127.
// Sums are in whole_sum.h, or in pair_sum.h if they are narrower than 32 bits.
using ActBlock = ActBlock16;

struct Quad {  // four consecutive activations in every lane: 0 and 2, 1 and 3
  VectorI16 even, odd;
};
SLUICE_INLINE Quad load_quad(const ActBlock& x, int j) {
  int32_t pairs[2];
  memcpy(pairs, x.q16 + 4 * j, sizeof pairs);
  return {reinterpret_cast<VectorI16>(splat_i32(pairs[0]).v),
          reinterpret_cast<VectorI16>(splat_i32(pairs[1]).v)};
}
SLUICE_INLINE Quad load_row(const ActBlock& x, int half) {
  VectorI32 a, b;
  memcpy(&a, x.q16 + 16 * half, sizeof a);
  memcpy(&b, x.q16 + 16 * half + 8, sizeof b);
  return {reinterpret_cast<VectorI16>(__builtin_shufflevector(a, b, 0, 2, 4, 6)),
          reinterpret_cast<VectorI16>(__builtin_shufflevector(a, b, 1, 3, 5, 7))};
}
struct Codes {
  VectorI16 even, odd;
};
SLUICE_INLINE Codes prepare(Bytes a) {
  const VectorU16 pairs = reinterpret_cast<VectorU16>(a.v);
  return {reinterpret_cast<VectorI16>(pairs & 0xff), reinterpret_cast<VectorI16>(pairs >> 8)};
}

SLUICE_INLINE I32 dot(I32 sum, const Codes& w, Quad x) {
  // Two products of 7-bit or signed codes fit in 16 bits.
  const VectorI16 two = w.even * x.even + w.odd * x.odd;
  const VectorI32 high = reinterpret_cast<VectorI32>(two) >> 16;
  const VectorI32 low = reinterpret_cast<VectorI32>(reinterpret_cast<VectorU32>(two) << 16) >> 16;
  return {sum.v + low + high};
}

using SignedQuad = Quad;
SLUICE_INLINE SignedQuad load_signed_row(const ActBlock& x, int half) {
  return load_row(x, half);
}
using SignedCodes = Codes;
SLUICE_INLINE SignedQuad load_signed_quad(const ActBlock& x, int j) {
  return load_quad(x, j);
}
SLUICE_INLINE SignedCodes prepare_signed(Bytes a) {
  const VectorU16 pairs = reinterpret_cast<VectorU16>(a.v);
  return {reinterpret_cast<VectorI16>(pairs << 8) >> 8, reinterpret_cast<VectorI16>(pairs) >> 8};
}
// Start of a sum of signed codes: 0, or the correction if codes are stored as w + 128.
SLUICE_INLINE I32 signed_offset(const int32_t&) {
  return splat_i32(0);
}
SLUICE_INLINE I32 dot_signed(I32 sum, const SignedCodes& w, SignedQuad x) {
  return dot(sum, w, x);
}

SLUICE_INLINE void prefetch(const void* p) {
  __builtin_prefetch(p);
}

// Lane i is the sum of the lanes of m[i], all added in the same order.
SLUICE_INLINE F32 reduce_add_each(const F32 (&m)[kLanes]) {
  const VectorF32 columns[4] = {{m[0].v[0], m[1].v[0], m[2].v[0], m[3].v[0]},
                                {m[0].v[1], m[1].v[1], m[2].v[1], m[3].v[1]},
                                {m[0].v[2], m[1].v[2], m[2].v[2], m[3].v[2]},
                                {m[0].v[3], m[1].v[3], m[2].v[3], m[3].v[3]}};
  return {(columns[0] + columns[2]) + (columns[1] + columns[3])};
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET

#include "kernels/isa/plain_factor.h"
#include "kernels/isa/plain_values.h"
#include "kernels/isa/whole_sum.h"
// Included last, because it uses the sums:
// clang-format off
#include "kernels/isa/four_lanes.h"
