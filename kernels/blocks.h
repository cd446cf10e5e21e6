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

// The types of SLUICE_DECODED_TYPE. Their packed rows are the file's words of 32 bits, so a block
// is `d`, or nothing, and then a multiple of four bytes. Codebooks are in codebooks.h. Sub-block b
// has the values from 32 b on and octet l of it those from 32 b + 8 l on. A sign bit of 1 negates.
// Seven sign bits are for the first seven values of an octet; the eighth bit makes their number
// even.

// x[i] = d * (s + 1/2) / 4 * +-entry, entries of eight. Sub-block b has eight bytes: an index for
// each octet, then a word with 7 sign bits for each octet and s above them.
struct BlockIQ2_XXS {
  f16 d;
  uint8_t qs[64];
};

// The same with 9 bits of index and 7 of signs for each octet (words of 16 bits). s of octets 0 and
// 1 of sub-block b is the low half of scales[b], that of octets 2 and 3 the high half.
struct BlockIQ2_XS {
  f16 d;
  uint8_t qs[64];
  uint8_t scales[8];
};

// The same with 10 bits of index: the lower 8 in qs, the upper two of octet l in bits 2l, 2l + 1 of
// qh[b]. Signs are 8 bits each.
struct BlockIQ2_S {
  f16 d;
  uint8_t qs[32];
  uint8_t signs[32];
  uint8_t qh[8];
  uint8_t scales[8];
};

// x[i] = d * (s + 1/2) / 2 * +-entry, entries of four with an index in a byte. signs[4 b ..] is a
// word as in IQ2_XXS.
struct BlockIQ3_XXS {
  f16 d;
  uint8_t qs[64];
  uint8_t signs[32];
};

// x[i] = d * (1 + 2 s) * +-entry, entries of four. Bit j of qh[b] is the ninth bit of index j of
// sub-block b; s is nibble b of scales, low half first.
struct BlockIQ3_S {
  f16 d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};

// x[i] = d * (2 s + 1) * (entry + delta), entries of eight out of -1, 0, 1. In the 16 bits of
// sub-block b of qh: three upper bits of each octet's index, s (3 bits), and whether delta is -1/8
// or 1/8.
struct BlockIQ1_S {
  f16 d;
  uint8_t qs[32];
  uint8_t qh[16];
};

// The same with s for each 16 values and delta for each octet. Nibble k of qh: three upper bits of
// index k, then the delta. scales are four words of 16 bits: s of values from 64 w + 16 j on is
// bits 3j .. 3j + 2 of word w, and its upper four bits are bits 4w .. 4w + 3 of d.
struct BlockIQ1_M {
  uint8_t qs[32];
  uint8_t qh[16];
  uint8_t scales[8];
};

// x[i] = kMxfp4Values[nibble] * e4m3(scales[i / 16]) / 2. A sub-block of 16 has eight bytes, with
// nibbles as in Q4_0. e4m3: no sign (bit 7 counts for nothing), 4 bits of exponent (bias 7), 3 of
// mantissa; 0x7f is 0. A tensor may have one more factor, the tensor ".scale".
struct BlockNVFP4 {
  uint8_t scales[4];
  uint8_t qs[32];
};

// x[i] = d if bit i of qs is set, else -d.
struct BlockQ1_0 {
  f16 d;
  uint8_t qs[16];
};

// x[i] = d * (q - 1); q is bits 2i, 2i + 1 of qs.
struct BlockQ2_0 {
  f16 d;
  uint8_t qs[16];
};

#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) \
  static_assert(sizeof(Block##NAME) == bytes);
#include "kernels/types.def"

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace sluice::kernels
