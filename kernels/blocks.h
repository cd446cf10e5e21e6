// GGUF block structs: how the file stores a run of weights that share a scale. Each struct is the
// file's bytes, little endian and unpadded, so a row is an array of blocks. Comments give the bit
// layouts of the GGUF format; "x[i]" is the i-th weight of the block. Plain data only: translation
// units with different instruction sets include this header and must not share inline functions.
#pragma once

#include "kernels/kernels.h"

namespace sluice::kernels {

inline constexpr int kSmallBlock = 32;
inline constexpr int kQsfBlock = 64;
inline constexpr int kSuperBlock = 256;

// x[i] = d * (nibble - 8); x[i] is the low nibble of qs[i], x[i + 16] the high one.
struct BlockQ4_0 {
  f16 d;
  uint8_t qs[16];
};

// x[i] = d * nibble + m; nibbles as in Q4_0.
struct BlockQ4_1 {
  f16 d, m;
  uint8_t qs[16];
};

// x[i] = d * (q - 16); q = nibble (as in Q4_0) | bit i of the 32-bit qh << 4.
struct BlockQ5_0 {
  f16 d;
  uint8_t qh[4];
  uint8_t qs[16];
};

// x[i] = d * q + m; q as in Q5_0.
struct BlockQ5_1 {
  f16 d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};

// x[i] = d * qs[i].
struct BlockQ8_0 {
  f16 d;
  int8_t qs[32];
};

// Two-bit planes of Q2_K, Q3_K and TQ2_0: with i = 128 h + 32 p + l, the two bits of x[i] are bits
// 2p, 2p + 1 of qs[32 h + l].

// x[i] = d * (scales[i / 16] & 15) * q - dmin * (scales[i / 16] >> 4); q from the two-bit planes.
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  f16 d, dmin;
};

// x[i] = d * (s[i / 16] - 32) * (q - 4); q = two bits from the planes | bit << 2, where bit is bit
// i / 32 of hmask[i % 32]. There are sixteen 6-bit s. scales[0..7] has their low nibbles (s[j] the
// low half of byte j, s[j + 8] the high half); bits 2 (j / 4) of scales[8 + j % 4] are the upper
// two bits of s[j].
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  f16 d;
};

// x[i] = d * s[i / 32] * q - dmin * m[i / 32]; with i = 64 c + 32 h + l, q is the low (h = 0) or
// high (h = 1) nibble of qs[32 c + l]. 6-bit s and m: for j < 4, s[j] = scales[j] & 63 and
// m[j] = scales[j + 4] & 63; else s[j] = (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4 and
// m[j] = (scales[j + 4] >> 4) | (scales[j] >> 6) << 4.
struct BlockQ4_K {
  f16 d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};

// As Q4_K, with bit i / 32 of qh[i % 32] as a fifth bit of q.
struct BlockQ5_K {
  f16 d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

// x[i] = d * scales[i / 16] * (q - 32). With i = 128 h + 32 p + l, the low four bits of q are the
// low (p < 2) or high (p >= 2) nibble of ql[64 h + 32 (p % 2) + l]. The upper two are bits 2p,
// 2p + 1 of qh[32 h + l].
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  f16 d;
};

// x[i] = d * kIq4Values[nibble]; nibbles as in Q4_0.
struct BlockIQ4_NL {
  f16 d;
  uint8_t qs[16];
};

// x[i] = d * (s[i / 32] - 32) * kIq4Values[nibble]; sub-block b has its nibbles in qs[16 b ..],
// laid out as in Q4_0. s[b] = nibble b of scales_l (low half first) | bits 2b, 2b + 1 of scales_h
// << 4.
struct BlockIQ4_XS {
  f16 d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

// x[i] = 2^(e - 128) * kMxfp4Values[nibble] (twice the E2M1 value, half the E8M0 scale); nibbles
// as in Q4_0.
struct BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};

// x[i] = d * (t - 1), where t is a base-3 digit. A byte holds five digits (four in qh), most
// significant first: digit n of byte b is floor(3 ((b * 3^n) mod 256) / 256). x[32 n + l] is digit
// n of qs[l] for l < 32, x[160 + 16 n + l] digit n of qs[32 + l] for l < 16, and x[240 + 4 n + l]
// digit n of qh[l].
struct BlockTQ1_0 {
  uint8_t qs[48];
  uint8_t qh[4];
  f16 d;
};

// x[i] = d * (q - 1); q from the two-bit planes.
struct BlockTQ2_0 {
  uint8_t qs[64];
  f16 d;
};

// x[i] = d * q + m; q of x[i] is the `bits` bits of qs from bit i * bits on, lowest first; bits is
// 2, 3 or 4.
struct BlockQSF2 {
  f16 d, m;
  uint8_t qs[16];
};
struct BlockQSF3 {
  f16 d, m;
  uint8_t qs[24];
};
struct BlockQSF4 {
  f16 d, m;
  uint8_t qs[32];
};

// x[i] = 0 if bit i of zeros is set, else -d if bit i of signs is set, else d.
struct BlockQSFT {
  f16 d;
  uint8_t signs[8];
  uint8_t zeros[8];
};

#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) \
  static_assert(sizeof(Block##NAME) == bytes);
#include "kernels/types.def"

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace sluice::kernels
