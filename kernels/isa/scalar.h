// The vector vocabulary in plain C++: four lanes as arrays, for any CPU, and the definition of what
// every other target's functions mean. A target header is included once per translation unit, with
// SLUICE_TARGET naming the namespace; everything has internal linkage, because code compiled for
// one instruction set must never be chosen by the linker for another.
#pragma once

#include <cstring>

#include "kernels/isa/act_block.h"
#include "kernels/isa/vocabulary.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kLanes = 4;      // f32 lanes of a vector
constexpr int kRowGroup = 8;   // rows interleaved in a packed group, a multiple of kLanes
constexpr int kTokenTile = 4;  // tokens that share a decoded weight vector
constexpr const char* kTargetName = "scalar";

struct F32 {
  float v[kLanes];
};
struct I32 {
  int32_t v[kLanes];
};
struct Mask {
  bool v[kLanes];
};
// 4 * kLanes bytes: lane i holds bytes 4i .. 4i + 3.
struct Bytes {
  uint8_t v[4 * kLanes];
};

#define SLUICE_EACH(expr)            \
  for (int i = 0; i < kLanes; ++i) { \
    expr;                            \
  }

// --- f32 ---------------------------------------------------------------------------------------
SLUICE_INLINE F32 splat(float x) {
  F32 r;
  SLUICE_EACH(r.v[i] = x)
  return r;
}
SLUICE_INLINE F32 load(const float* p) {
  F32 r;
  memcpy(&r, p, sizeof r);
  return r;
}
SLUICE_INLINE void store(float* p, F32 a) {
  memcpy(p, &a, sizeof a);
}
// The first n lanes (0 <= n <= kLanes); the others are 0. Touches n floats only.
SLUICE_INLINE F32 load_n(const float* p, int n) {
  F32 r;
  SLUICE_EACH(r.v[i] = i < n ? p[i] : 0.0f)
  return r;
}
SLUICE_INLINE void store_n(float* p, F32 a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}
SLUICE_INLINE F32 operator+(F32 a, F32 b) {
  SLUICE_EACH(a.v[i] += b.v[i])
  return a;
}
SLUICE_INLINE F32 operator-(F32 a, F32 b) {
  SLUICE_EACH(a.v[i] -= b.v[i])
  return a;
}
SLUICE_INLINE F32 operator*(F32 a, F32 b) {
  SLUICE_EACH(a.v[i] *= b.v[i])
  return a;
}
SLUICE_INLINE F32 operator/(F32 a, F32 b) {
  SLUICE_EACH(a.v[i] /= b.v[i])
  return a;
}
// a * b + c, fused where the target can.
SLUICE_INLINE F32 mul_add(F32 a, F32 b, F32 c) {
  SLUICE_EACH(a.v[i] = a.v[i] * b.v[i] + c.v[i])
  return a;
}
// c - a * b.
SLUICE_INLINE F32 neg_mul_add(F32 a, F32 b, F32 c) {
  SLUICE_EACH(a.v[i] = c.v[i] - a.v[i] * b.v[i])
  return a;
}
// The second operand where either is NaN.
SLUICE_INLINE F32 min(F32 a, F32 b) {
  SLUICE_EACH(a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i])
  return a;
}
SLUICE_INLINE F32 max(F32 a, F32 b) {
  SLUICE_EACH(a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i])
  return a;
}
SLUICE_INLINE F32 abs(F32 a) {
  SLUICE_EACH(a.v[i] = __builtin_fabsf(a.v[i]))
  return a;
}
SLUICE_INLINE F32 sqrt(F32 a) {
  SLUICE_EACH(a.v[i] = __builtin_sqrtf(a.v[i]))
  return a;
}
SLUICE_INLINE float reduce_add(F32 a) {
  return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);
}
SLUICE_INLINE float reduce_max(F32 a) {
  float m = a.v[0];
  SLUICE_EACH(m = a.v[i] > m ? a.v[i] : m)
  return m;
}
SLUICE_INLINE Mask operator<(F32 a, F32 b) {
  Mask r;
  SLUICE_EACH(r.v[i] = a.v[i] < b.v[i])
  return r;
}
// mask ? a : b.
SLUICE_INLINE F32 select(Mask m, F32 a, F32 b) {
  SLUICE_EACH(a.v[i] = m.v[i] ? a.v[i] : b.v[i])
  return a;
}

// --- i32 ---------------------------------------------------------------------------------------
SLUICE_INLINE I32 splat_i32(int32_t x) {
  I32 r;
  SLUICE_EACH(r.v[i] = x)
  return r;
}
SLUICE_INLINE void store(int32_t* p, I32 a) {
  memcpy(p, &a, sizeof a);
}
SLUICE_INLINE I32 operator+(I32 a, I32 b) {
  SLUICE_EACH(a.v[i] += b.v[i])
  return a;
}
SLUICE_INLINE I32 operator-(I32 a, I32 b) {
  SLUICE_EACH(a.v[i] -= b.v[i])
  return a;
}
template <int kBits>
SLUICE_INLINE I32 shl(I32 a) {
  SLUICE_EACH(a.v[i] = static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << kBits))
  return a;
}
SLUICE_INLINE F32 to_f32(I32 a) {
  F32 r;
  SLUICE_EACH(r.v[i] = static_cast<float>(a.v[i]))
  return r;
}
// Rounded to nearest, ties to even; unspecified outside +-2^22 and for NaN.
SLUICE_INLINE I32 round_i32(F32 a) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: the sum's low bits are the rounded integer
  I32 r;
  for (int i = 0; i < kLanes; ++i) {
    const float sum = a.v[i] + kMagic;
    int32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    r.v[i] = bits - 0x4B400000;
  }
  return r;
}
SLUICE_INLINE F32 as_f32(I32 a) {
  F32 r;
  memcpy(&r, &a, sizeof r);
  return r;
}
SLUICE_INLINE I32 as_i32(F32 a) {
  I32 r;
  memcpy(&r, &a, sizeof r);
  return r;
}

// --- conversions on load and store ---------------------------------------------------------------
SLUICE_INLINE float f16_value(uint16_t h) {
  // Shift into f32's fields, then multiply by 2^112 to move the exponent's bias; subnormals come
  // out right, infinities and NaN get the exponent patched.
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
  F32 r;
  SLUICE_EACH(r.v[i] = f16_value(h[i]))
  return r;
}
SLUICE_INLINE void store_f16(void* p, F32 a) {
  uint16_t h[kLanes];
  SLUICE_EACH(h[i] = f16_bits(a.v[i]))
  memcpy(p, h, sizeof h);
}
SLUICE_INLINE F32 load_bf16(const void* p) {
  uint16_t h[kLanes];
  memcpy(h, p, sizeof h);
  I32 r;
  SLUICE_EACH(r.v[i] = static_cast<int32_t>(static_cast<uint32_t>(h[i]) << 16))
  return as_f32(r);
}
SLUICE_INLINE F32 load_u8(const uint8_t* p) {
  F32 r;
  SLUICE_EACH(r.v[i] = static_cast<float>(p[i]))
  return r;
}
SLUICE_INLINE F32 load_s8(const uint8_t* p) {
  F32 r;
  SLUICE_EACH(r.v[i] = static_cast<float>(static_cast<int8_t>(p[i])))
  return r;
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
  for (int i = 0; i < 4 * kLanes; ++i) a.v[i] = static_cast<uint8_t>(a.v[i] | b.v[i]);
  return a;
}
// ((a >> kShift) & kMask) in every byte, for kShift < 0 ((a << -kShift) & kMask). The mask clears
// what a wider shift would bring in from the neighbouring byte.
template <int kShift, int kMask>
SLUICE_INLINE Bytes bits(Bytes a) {
  static_assert(kShift >= 0 ? (kMask << kShift) <= 0xff : (kMask & ((1 << -kShift) - 1)) == 0);
  for (int i = 0; i < 4 * kLanes; ++i) {
    a.v[i] = static_cast<uint8_t>((kShift >= 0 ? a.v[i] >> (kShift & 7) : a.v[i] << (-kShift & 7)) &
                                  kMask);
  }
  return a;
}
// table[a] in every byte, a < 16.
SLUICE_INLINE Bytes lookup16(const int8_t* table, Bytes a) {
  for (int i = 0; i < 4 * kLanes; ++i) a.v[i] = static_cast<uint8_t>(table[a.v[i]]);
  return a;
}

// --- integer dot products
// -------------------------------------------------------------------------- Weights are prepared
// once and used for many tokens. Unsigned codes are 0..127, signed -128..127. A sum that takes
// kQuads dots with codes up to kMax may be kept narrower than 32 bits; the offset is given to both
// ends, so that a target applies it where that is free.
using ActBlock = ActBlock8;

struct Quad {  // four consecutive activations, in every lane
  int8_t v[4];
};
SLUICE_INLINE Quad load_quad(const ActBlock& x, int j) {
  Quad r;
  memcpy(&r, x.q + 4 * j, 4);
  return r;
}
using Codes = Bytes;
SLUICE_INLINE Codes prepare(Bytes a) {
  return a;
}

template <int kMax, int kQuads>
using Sum = I32;
template <class S>
SLUICE_INLINE S start(I32 offset) {
  return offset;
}
SLUICE_INLINE I32 finish(I32 sum, I32) {
  return sum;
}
SLUICE_INLINE I32 dot(I32 sum, const Codes& w, Quad x) {
  for (int i = 0; i < kLanes; ++i) {
    for (int k = 0; k < 4; ++k) sum.v[i] += w.v[4 * i + k] * x.v[k];
  }
  return sum;
}

using SignedQuad = Quad;
using SignedCodes = Bytes;
SLUICE_INLINE SignedQuad load_signed_quad(const ActBlock& x, int j) {
  return load_quad(x, j);
}
SLUICE_INLINE SignedCodes prepare_signed(Bytes a) {
  return a;
}
// What a sum of signed codes starts from: 0, or the correction where codes are held as w + 128.
SLUICE_INLINE I32 signed_offset(const int32_t&) {
  return splat_i32(0);
}
SLUICE_INLINE I32 dot_signed(I32 sum, const SignedCodes& w, SignedQuad x) {
  for (int i = 0; i < kLanes; ++i) {
    for (int k = 0; k < 4; ++k) sum.v[i] += static_cast<int8_t>(w.v[4 * i + k]) * x.v[k];
  }
  return sum;
}

SLUICE_INLINE void prefetch(const void* p) {
  __builtin_prefetch(p);
}

#undef SLUICE_EACH

// Rows become columns.
SLUICE_INLINE void transpose(F32 (&m)[kLanes]) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < i; ++j) {
      const float x = m[i].v[j];
      m[i].v[j] = m[j].v[i];
      m[j].v[i] = x;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
