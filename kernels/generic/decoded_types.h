// Decoders of the codebook types, of one and two bits, and of NVFP4: a packed block of a row group
// (decoded_matmul.h) to int8 codes and f32 scales. blocks.h has the bit layouts. Every lane is a
// row, so a word of 32 bits is taken apart for kLanes rows at once, and only table entries are read
// row by row.
#pragma once

#include "kernels/generic/decoded_block.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// f(b, v) for each sub-block and vector of rows of a block.
template <int kSubBlocks, class F>
SLUICE_INLINE void for_sub_blocks(const F& f) {
  SLUICE_NO_UNROLL for (int v = 0; v < kVecs; ++v) {
    SLUICE_NO_UNROLL for (int b = 0; b < kSubBlocks; ++b) f(b, v);
  }
}
// The scales of a block, times a power of two.
SLUICE_INLINE F32 block_scale(const uint8_t* block, int v, float times) {
  return load_scale(block + 2 * kLanes * v) * splat(times);
}

// What makes a code of what a block has: entries of a table with signs or with deltas, a few bits
// each, or one bit.
enum class Coding { kSigns, kDeltas, kCodes, kBits };

// kSameScale: the columns that share a scale. kLargest: of the codes, without their signs. kParts:
// codes count such parts of a block's scale.
template <class B, int kBlockValues, int kSameScale, int kLargest, int kParts = 1>
struct DecoderOf {
  using Block = B;
  static_assert(kLargest <= kMaxCode);
  static constexpr int kMax = kLargest;
  static constexpr bool kSmall = kLargest <= kMaxSmallCode;
  static constexpr int kValues = kBlockValues;
  static constexpr int kScaled = kHalvesOnly ? kHalf : kSameScale;
  static constexpr bool kHasScale = sizeof(Block) % 4 == 2;
  // What follows the scales.
  SLUICE_INLINE_METHOD static const uint8_t* words(const uint8_t* block) {
    return kHasScale ? block + kHalfStep : block;
  }
  SLUICE_INLINE_METHOD static F32 scale(const uint8_t* block, int v) {
    return block_scale(block, v, 1.0f / kParts);
  }
};

// Decodes types of entries, which have two steps of their own: the index of entry j of sub-block b,
// shifted by kTo bits, and finish(), which applies its signs or deltas.
template <class K>
SLUICE_INLINE void decode_entries(const uint8_t* block, Decoded out) {
  const uint8_t* words = K::words(block);
  const auto* table = K::table();
  constexpr int kEntries = kActValues / static_cast<int>(sizeof *table);
  for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
    SLUICE_NO_UNROLL for (int j = 0; j < kEntries; ++j) {
      out.look_up(table, kEntries * b + j, v, K::index(words, b, j, v));
    }
  });
  for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
    const SubScales scales = K::scales(words, K::scale(block, v), b, v);
    if constexpr (K::kScaled == kHalf) {
      out.put_half_scales(b, v, scales);
    } else {
      out.put_scale(b, v, scales.half[0]);
    }
    K::finish(words, b, v, out);
  });
}

// Entries of which eight values have a byte of signs: octets, or pairs of quads.
template <class K>
struct SignedEntries {
  static constexpr Coding kCoding = Coding::kSigns;
  static void decode(const uint8_t* block, Decoded out) { decode_entries<K>(block, out); }
  SLUICE_INLINE_METHOD static void finish(const uint8_t* words, int b, int v, Decoded out) {
    if constexpr (sizeof *K::table() == 8) {
      out.sign_octets(b, v, K::signs(words, b, v));
    } else {
      out.sign_quads(b, v, K::signs(words, b, v));
    }
  }
};

struct IQ2_XXS : DecoderOf<BlockIQ2_XXS, 256, 32, 43, 8>, SignedEntries<IQ2_XXS> {
  SLUICE_INLINE_METHOD static const uint64_t* table() { return codebooks().iq2_xxs; }
  template <int kTo = 0>
  SLUICE_INLINE_METHOD static UnsignedLanes index(const uint8_t* words, int b, int j, int v) {
    return field<8, kTo>(load_word(words, 2 * b, v), 8 * j);
  }
  SLUICE_INLINE_METHOD static UnsignedLanes signs(const uint8_t* words, int b, int v) {
    return eight_signs(load_word(words, 2 * b + 1, v));
  }
  SLUICE_INLINE_METHOD static SubScales scales(const uint8_t* words, F32 d, int b, int v) {
    return in_common(odd_scale(load_word(words, 2 * b + 1, v) >> 28) * d);
  }
};

// Scales of the halves of sub-block b: the nibbles of byte b of two words.
SLUICE_INLINE SubScales nibble_scales(const uint8_t* words, F32 d, int b, int v) {
  const UnsignedLanes both = load_word(words, b / 4, v) >> 8 * (b % 4);
  const UnsignedLanes low = constant_lanes<15>();
  return {{odd_scale(both & low) * d, odd_scale(both >> 4 & low) * d}};
}

// The signs of four octets: the upper seven bits of each half of two words.
SLUICE_INLINE UnsignedLanes iq2_xs_signs(UnsignedLanes first, UnsignedLanes last) {
  return with_even_parity((first >> 9 & 0x7fu) | (first >> 17 & 0x7f00u) | (last << 7 & 0x7f0000u) |
                          (last >> 1 & 0x7f000000u));
}

struct IQ2_XS : DecoderOf<BlockIQ2_XS, 256, 16, 43, 8>, SignedEntries<IQ2_XS> {
  SLUICE_INLINE_METHOD static const uint64_t* table() { return codebooks().iq2_xs; }
  template <int kTo = 0>
  SLUICE_INLINE_METHOD static UnsignedLanes index(const uint8_t* words, int b, int j, int v) {
    return field<9, kTo>(load_word(words, 2 * b + j / 2, v), 16 * (j % 2));
  }
  SLUICE_INLINE_METHOD static UnsignedLanes signs(const uint8_t* words, int b, int v) {
    return iq2_xs_signs(load_word(words, 2 * b, v), load_word(words, 2 * b + 1, v));
  }
  SLUICE_INLINE_METHOD static SubScales scales(const uint8_t* words, F32 d, int b, int v) {
    return nibble_scales(words + kBytesStep * 16, d, b, v);
  }
};

struct IQ2_S : DecoderOf<BlockIQ2_S, 256, 16, 43, 8>, SignedEntries<IQ2_S> {
  SLUICE_INLINE_METHOD static const uint64_t* table() { return codebooks().iq2_s; }
  template <int kTo = 0>
  SLUICE_INLINE_METHOD static UnsignedLanes index(const uint8_t* words, int b, int j, int v) {
    const UnsignedLanes upper = load_word(words, 16 + b / 4, v) >> 8 * (b % 4);
    return field<8, kTo>(load_word(words, b, v), 8 * j) | field<2, kTo + 8>(upper, 2 * j);
  }
  SLUICE_INLINE_METHOD static UnsignedLanes signs(const uint8_t* words, int b, int v) {
    return load_word(words, 8 + b, v);
  }
  SLUICE_INLINE_METHOD static SubScales scales(const uint8_t* words, F32 d, int b, int v) {
    return nibble_scales(words + kBytesStep * 18, d, b, v);
  }
};

struct IQ3_XXS : DecoderOf<BlockIQ3_XXS, 256, 32, 62, 4>, SignedEntries<IQ3_XXS> {
  SLUICE_INLINE_METHOD static const uint32_t* table() { return codebooks().iq3_xxs; }
  template <int kTo = 0>
  SLUICE_INLINE_METHOD static UnsignedLanes index(const uint8_t* words, int b, int j, int v) {
    return field<8, kTo>(load_word(words, 2 * b + j / 4, v), 8 * (j % 4));
  }
  SLUICE_INLINE_METHOD static UnsignedLanes signs(const uint8_t* words, int b, int v) {
    return eight_signs(load_word(words, 16 + b, v));
  }
  SLUICE_INLINE_METHOD static SubScales scales(const uint8_t* words, F32 d, int b, int v) {
    return in_common(odd_scale(load_word(words, 16 + b, v) >> 28) * d);
  }
};

struct IQ3_S : DecoderOf<BlockIQ3_S, 256, 32, 15>, SignedEntries<IQ3_S> {
  SLUICE_INLINE_METHOD static const uint32_t* table() { return codebooks().iq3_s; }
  template <int kTo = 0>
  SLUICE_INLINE_METHOD static UnsignedLanes index(const uint8_t* words, int b, int j, int v) {
    const UnsignedLanes upper = load_word(words, 16 + b / 4, v) >> 8 * (b % 4);
    return field<8, kTo>(load_word(words, 2 * b + j / 4, v), 8 * (j % 4)) |
           field<1, kTo + 8>(upper, j);
  }
  SLUICE_INLINE_METHOD static UnsignedLanes signs(const uint8_t* words, int b, int v) {
    return load_word(words, 18 + b, v);
  }
  SLUICE_INLINE_METHOD static SubScales scales(const uint8_t* words, F32 d, int b, int v) {
    return in_common(odd_scale(load_word(words, 26, v) >> 4 * b & 15) * d);
  }
};

// Octets of IQ1. The upper three bits of an index are kStep bits behind those of the one before.
template <class K, int kStep>
struct ShiftedOctets {
  static constexpr Coding kCoding = Coding::kDeltas;
  static void decode(const uint8_t* block, Decoded out) { decode_entries<K>(block, out); }
  SLUICE_INLINE_METHOD static const uint64_t* table() { return codebooks().iq1; }
  SLUICE_INLINE_METHOD static UnsignedLanes upper(const uint8_t* words, int b, int v) {
    return load_word(words, 8 + b / 2, v) >> 16 * (b % 2);
  }
  template <int kTo = 0>
  SLUICE_INLINE_METHOD static UnsignedLanes index(const uint8_t* words, int b, int j, int v) {
    return field<8, kTo>(load_word(words, b, v), 8 * j) |
           field<3, kTo + 8>(upper(words, b, v), kStep * j);
  }
  SLUICE_INLINE_METHOD static void finish(const uint8_t* words, int b, int v, Decoded out) {
    out.shift_octets<K::kDeltaBit, K::kDeltaStep>(b, v, upper(words, b, v));
  }
};

struct IQ1_S : DecoderOf<BlockIQ1_S, 256, 32, 9, 8>, ShiftedOctets<IQ1_S, 3> {
  static constexpr int kDeltaBit = 15, kDeltaStep = 0;
  SLUICE_INLINE_METHOD static SubScales scales(const uint8_t* words, F32 d, int b, int v) {
    return in_common(odd_scale(upper(words, b, v) >> 12 & 7) * d);
  }
};

// An eighth of the f16 in the upper four bits of each half of words 12 and 13.
SLUICE_INLINE F32 iq1_m_scale(const uint8_t* words, int v) {
  const UnsignedLanes a = load_word(words, 12, v), b = load_word(words, 13, v);
  const UnsignedLanes bits =
      (a >> 12 & 15) | (a >> 24 & 0xf0u) | (b >> 4 & 0xf00u) | (b >> 16 & 0xf000u);
  const UnsignedLanes shifted = (bits & 0x8000u) << 16 | (bits & 0x7fffu) << 13;
  return as_f32(__builtin_bit_cast(I32, shifted)) * splat(0x1p109f);
}
// Scales of the halves of sub-block b, of three bits each.
SLUICE_INLINE SubScales iq1_m_scales(const uint8_t* words, F32 d, int b, int v) {
  const UnsignedLanes s = load_word(words, 12 + b / 4, v) >> (16 * (b / 2 % 2) + 6 * (b % 2));
  return {{odd_scale(s & 7) * d, odd_scale(s >> 3 & 7) * d}};
}

struct IQ1_M : DecoderOf<BlockIQ1_M, 256, 16, 9>, ShiftedOctets<IQ1_M, 4> {
  static constexpr int kDeltaBit = 3, kDeltaStep = 4;
  SLUICE_INLINE_METHOD static F32 scale(const uint8_t* words, int v) {
    return iq1_m_scale(words, v);
  }
  SLUICE_INLINE_METHOD static SubScales scales(const uint8_t* words, F32 d, int b, int v) {
    return iq1_m_scales(words, d, b, v);
  }
};

struct Fp4Codes {
  int8_t codes[16];
};
constexpr Fp4Codes offset_fp4() {
  Fp4Codes all = {};
  for (int i = 0; i < 16; ++i) all.codes[i] = static_cast<int8_t>(kMxfp4Values[i] + kCodeOffset);
  return all;
}
inline constexpr Fp4Codes kOffsetFp4 = offset_fp4();

struct NVFP4 : DecoderOf<BlockNVFP4, 64, 16, 12> {
  static constexpr Coding kCoding = Coding::kCodes;
  static void decode(const uint8_t* words, Decoded out) {
    for_sub_blocks<2>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      out.put_half_scales(b, v, scales(words, scale(words, v), b, v));
      SLUICE_NO_UNROLL for (int half = 2 * b; half < 2 * b + 2; ++half) {
        SLUICE_UNROLL for (int j = 0; j < 4; ++j) {
          out.put_offset(4 * half + j, v, codes(words, half, j, v));
        }
      }
    });
  }
  // Quad j of a half, with 1 << kShift added.
  static constexpr int kShift = kCodeShift;
  SLUICE_INLINE_METHOD static LaneBytes codes(const uint8_t* words, int half, int j, int v) {
    const Bytes both = bytes_of(load_word(words, 1 + 2 * half + j % 2, v));
    const Bytes nibbles = j < 2 ? bits<0, 15>(both) : bits<4, 15>(both);
    return __builtin_bit_cast(LaneBytes, lookup16(kOffsetFp4.codes, nibbles));
  }
  SLUICE_INLINE_METHOD static F32 scale(const uint8_t*, int) { return splat(1); }
  SLUICE_INLINE_METHOD static SubScales scales(const uint8_t* words, F32, int b, int v) {
    const UnsignedLanes two = load_word(words, 0, v) >> 16 * b;
    return {{e4m3(two & 255), e4m3(two >> 8 & 255)}};
  }

 private:
  // Half of an E4M3 number without sign.
  SLUICE_INLINE_METHOD static F32 e4m3(UnsignedLanes e) {
    const UnsignedLanes not_a_number = constant_lanes<127>(), magnitude = e & not_a_number;
    const auto is_subnormal =
        __builtin_bit_cast(UnsignedLanes, __builtin_bit_cast(Lanes, magnitude) <
                                              __builtin_bit_cast(Lanes, constant_lanes<8>()));
    // A subnormal one gets the exponent of the smallest normal ones and a leading 1, which is 2^-7
    // and is taken away again. All of it is exact.
    const UnsignedLanes normal = (magnitude << 20) + constant_lanes<119u << 23>();
    const UnsignedLanes leading = is_subnormal & constant_lanes<120u << 23>();
    const F32 value = as_f32(__builtin_bit_cast(I32, normal - (is_subnormal << 23))) -
                      as_f32(__builtin_bit_cast(I32, leading));
    return as_f32(lanes_of(lanes(as_i32(value)) & ~__builtin_bit_cast(Lanes, e == not_a_number)));
  }
};

struct Q1_0 : DecoderOf<BlockQ1_0, 128, 32, 1> {
  static constexpr Coding kCoding = Coding::kBits;
  static void decode(const uint8_t* block, Decoded out) {
    const LaneBytes minus_one = __builtin_bit_cast(LaneBytes, every_lane(~0u));
    for_sub_blocks<4>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      UnsignedLanes bits = load_word(block + kHalfStep, b, v);
      out.put_scale(b, v, scale(block, v));
      SLUICE_NO_UNROLL for (int octet = 4 * b; octet < 4 * b + 4; ++octet, bits >>= 8) {
        out.put_signed(octet, v, {{minus_one, minus_one}}, bits);
      }
    });
  }
  SLUICE_INLINE_METHOD static SubScales scales(const uint8_t*, F32 d, int, int) {
    return in_common(d);
  }
};

struct Q2_0 : DecoderOf<BlockQ2_0, 64, 32, 2> {
  static constexpr Coding kCoding = Coding::kCodes;
  static void decode(const uint8_t* block, Decoded out) {
    for_sub_blocks<2>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      out.put_scale(b, v, scale(block, v));
      SLUICE_NO_UNROLL for (int half = 2 * b; half < 2 * b + 2; ++half) {
        SLUICE_NO_UNROLL for (int j = 0; j < 4; ++j) {
          const LaneBytes offset = codes(words(block), half, j, v);
          out.put_offset(4 * half + j, v, offset + static_cast<uint8_t>(kCodeOffset - 1));
        }
      }
    });
  }
  // Quad j of a half, with 1 added: two bits to the low end of each byte.
  static constexpr int kShift = 0;
  SLUICE_INLINE_METHOD static LaneBytes codes(const uint8_t* words, int half, int j, int v) {
    const UnsignedLanes four = field<8, 0>(load_word(words, half, v), 8 * j);
    const UnsignedLanes two = four | four << 12;
    return __builtin_bit_cast(LaneBytes, (two | two << 6) & constant_lanes<0x03030303u>());
  }
  SLUICE_INLINE_METHOD static SubScales scales(const uint8_t*, F32 d, int, int) {
    return in_common(d);
  }
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
