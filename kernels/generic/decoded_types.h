// Decoders of the codebook types, of one and two bits, and of NVFP4: a packed block of a row group
// (decoded_matmul.h) to int8 codes and f32 scales. blocks.h has the bit layouts. Every lane is a
// row, so a word of 32 bits is taken apart for kLanes rows at once, and only table entries are read
// row by row.
#pragma once

#include "kernels/generic/decoded_lanes.h"
#include "kernels/generic/subblock.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kMaxDecodedBytes = 110;  // of a block in the file
constexpr int kDecodedColumns = 512;   // of a row group, decoded together
// Every 16 columns have a scale of their own: less code, where code is downloaded.
#if defined(__wasm__)
constexpr bool kHalvesOnly = true;
#else
constexpr bool kHalvesOnly = false;
#endif
constexpr int kHalf = kActValues / 2;  // columns of half a sub-block
// Codes are stored with this added, which makes them 0 to 127 and their dot product the cheaper one
// on targets where signs take steps.
#if defined(SLUICE_SIGNED_DOTS)
constexpr int kCodeShift = -1, kCodeOffset = 0;
#else
constexpr int kCodeShift = 6, kCodeOffset = 1 << kCodeShift;
#endif
constexpr int kMaxCode = 62;       // of all types
constexpr int kMaxSmallCode = 16;  // products of 32 of them, in pairs, add up in 16 bits

// IQ1's delta in every byte: -1 where the bit is set, else 1.
SLUICE_INLINE LaneBytes delta_of(UnsignedLanes high, int bit) {
  return __builtin_bit_cast(LaneBytes, (0 - (high >> bit & 1)) | 0x01010101u);
}

// Where a block of a row group is decoded to. Table entries are written row by row first, and only
// once all of the block's are there are they read as vectors: a vector load has to wait for the
// stores of what it reads.
struct Decoded {
  uint8_t* codes;  // int8 + kCodeOffset, as Q8_0 is packed: [quad][row][4]
  float* scales;   // [half of a sub-block, or a whole one][row]

  SLUICE_INLINE_METHOD uint8_t* at(int quad, int v) const {
    return codes + kBytesStep * quad + 4 * kLanes * v;
  }
  SLUICE_INLINE_METHOD LaneBytes get(int quad, int v) const {
    return __builtin_bit_cast(LaneBytes, load_bytes(at(quad, v)));
  }
  // The codes of a quad, with kCodeOffset and without.
  SLUICE_INLINE_METHOD void put_offset(int quad, int v, LaneBytes a) const {
    store_bytes(at(quad, v), __builtin_bit_cast(Bytes, a));
  }
  SLUICE_INLINE_METHOD void put(int quad, int v, LaneBytes a) const {
    put_offset(quad, v, a + static_cast<uint8_t>(kCodeOffset));
  }
  SLUICE_INLINE_METHOD void put_half_scale(int half, int v, F32 a) const {
    store(scales + kRowGroup * half + kLanes * v, a);
  }
  SLUICE_INLINE_METHOD void put_scale(int b, int v, F32 a) const {
    if constexpr (kHalvesOnly) put_half_scale(2 * b + 1, v, a);
    put_half_scale(kHalvesOnly ? 2 * b : b, v, a);
  }

  // Entries of four bytes: a quad.
  SLUICE_INLINE_METHOD void look_up(const uint32_t* table, int quad, int v,
                                    UnsignedLanes index) const {
    const Scalars of(index);
    SLUICE_UNROLL for (int r = 0; r < kLanes; ++r) memcpy(at(quad, v) + 4 * r, &table[of[r]], 4);
  }
  // Entries of eight bytes, in the places of two quads, in the order that take() expects.
  SLUICE_INLINE_METHOD void look_up(const uint64_t* table, int octet, int v,
                                    UnsignedLanes index) const {
    const Scalars of(index);
    SLUICE_UNROLL for (int r = 0; r < kLanes; ++r) {
      memcpy(at(2 * octet + r % 4 / 2, v) + 8 * (r / 4 * 2 + r % 2), &table[of[r]], 8);
    }
  }
  struct Octet {
    LaneBytes quad[2];
  };
  SLUICE_INLINE_METHOD Octet take(int octet, int v) const {
    constexpr auto kAll = std::make_integer_sequence<int, kLanes>();
    const auto a = __builtin_bit_cast(UnsignedLanes, get(2 * octet, v));
    const auto b = __builtin_bit_cast(UnsignedLanes, get(2 * octet + 1, v));
    return {{__builtin_bit_cast(LaneBytes, alternate<0>(a, b, kAll)),
             __builtin_bit_cast(LaneBytes, alternate<1>(a, b, kAll))}};
  }

  // Entries of a quad pair, negated where bits of the lowest byte of `signs` are set.
  SLUICE_INLINE_METHOD void put_signed(int octet, int v, const Octet& entries,
                                       UnsignedLanes signs) const {
    const LaneBytes own = repeat_low_byte(signs);
    put(2 * octet, v, negate_signed<0>(entries.quad[0], own));
    put(2 * octet + 1, v, negate_signed<1>(entries.quad[1], own));
  }
  // The four octets of sub-block b, a byte of signs for each. Loops over them are not unrolled: an
  // octet of all rows takes long, and code size counts in a browser.
  SLUICE_INLINE_METHOD void sign_octets(int b, int v, UnsignedLanes signs) const {
    SLUICE_NO_UNROLL for (int octet = 4 * b; octet < 4 * b + 4; ++octet, signs >>= 8) {
      put_signed(octet, v, take(octet, v), signs);
    }
  }
  SLUICE_INLINE_METHOD void sign_quads(int b, int v, UnsignedLanes signs) const {
    SLUICE_NO_UNROLL for (int octet = 4 * b; octet < 4 * b + 4; ++octet, signs >>= 8) {
      put_signed(octet, v, {{get(2 * octet, v), get(2 * octet + 1, v)}}, signs);
    }
  }
  // Entries of -1, 0 and 1, eightfold, and 1 or -1 (bit kBit of `high`: -1) beside each. `high`
  // moves by kStep bits from octet to octet.
  template <int kBit, int kStep>
  SLUICE_INLINE_METHOD void shift_octets(int b, int v, UnsignedLanes high) const {
    SLUICE_NO_UNROLL for (int octet = 4 * b; octet < 4 * b + 4; ++octet, high >>= kStep) {
      const LaneBytes delta = delta_of(high, kBit);
      const Octet entries = take(octet, v);
      SLUICE_UNROLL for (int i = 0; i < 2; ++i) put(2 * octet + i, v, entries.quad[i] + delta);
    }
  }
};

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

// kSameScale: the columns that share a scale. kLargest: of the codes, without their signs.
template <class B, int kBlockValues, int kSameScale, int kLargest>
struct DecoderOf {
  using Block = B;
  static_assert(kLargest <= kMaxCode);
  static constexpr bool kSmall = kLargest <= kMaxSmallCode;
  static constexpr int kValues = kBlockValues;
  static constexpr int kScaled = kHalvesOnly ? kHalf : kSameScale;
  static constexpr bool kHasScale = sizeof(Block) % 4 == 2;
};

struct IQ2_XXS : DecoderOf<BlockIQ2_XXS, 256, 32, 43> {
  static void decode(const uint8_t* block, Decoded out) {
    const uint64_t* table = codebooks().iq2_xxs;
    const uint8_t* words = block + kHalfStep;
    for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      UnsignedLanes index = load_word(words, 2 * b, v);
      SLUICE_NO_UNROLL for (int l = 0; l < 4; ++l, index >>= 8) {
        out.look_up(table, 4 * b + l, v, index & 255);
      }
    });
    for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      const UnsignedLanes w = load_word(words, 2 * b + 1, v);
      out.put_scale(b, v, odd_scale(w >> 28) * block_scale(block, v, 0.125f));
      out.sign_octets(b, v, eight_signs(w));
    });
  }
};

// Scales of the halves of sub-block b: the nibbles of byte b of two words.
SLUICE_INLINE void put_nibble_scales(const uint8_t* block, const uint8_t* words, int b, int v,
                                     Decoded out) {
  const F32 d = block_scale(block, v, 0.125f);
  const UnsignedLanes both = load_word(words, b / 4, v) >> 8 * (b % 4);
  out.put_half_scale(2 * b, v, odd_scale(both & 15) * d);
  out.put_half_scale(2 * b + 1, v, odd_scale(both >> 4 & 15) * d);
}

// The signs of four octets: the upper seven bits of each half of two words.
SLUICE_INLINE UnsignedLanes iq2_xs_signs(UnsignedLanes first, UnsignedLanes last) {
  return with_even_parity((first >> 9 & 0x7fu) | (first >> 17 & 0x7f00u) | (last << 7 & 0x7f0000u) |
                          (last >> 1 & 0x7f000000u));
}

struct IQ2_XS : DecoderOf<BlockIQ2_XS, 256, 16, 43> {
  static void decode(const uint8_t* block, Decoded out) {
    const uint64_t* table = codebooks().iq2_xs;
    const uint8_t* words = block + kHalfStep;
    for_sub_blocks<16>([&](int half, int v) SLUICE_INLINE_LAMBDA {
      UnsignedLanes index = load_word(words, half, v);
      SLUICE_NO_UNROLL for (int l = 0; l < 2; ++l, index >>= 16) {
        out.look_up(table, 2 * half + l, v, index & 511);
      }
    });
    for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      const UnsignedLanes first = load_word(words, 2 * b, v), last = load_word(words, 2 * b + 1, v);
      put_nibble_scales(block, words + kBytesStep * 16, b, v, out);
      out.sign_octets(b, v, iq2_xs_signs(first, last));
    });
  }
};

struct IQ2_S : DecoderOf<BlockIQ2_S, 256, 16, 43> {
  static void decode(const uint8_t* block, Decoded out) {
    const uint64_t* table = codebooks().iq2_s;
    const uint8_t* words = block + kHalfStep;
    for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      UnsignedLanes low = load_word(words, b, v);
      UnsignedLanes high = load_word(words, 16 + b / 4, v) >> 8 * (b % 4);
      SLUICE_NO_UNROLL for (int l = 0; l < 4; ++l, low >>= 8, high >>= 2) {
        out.look_up(table, 4 * b + l, v, (low & 255) | (high & 3) << 8);
      }
    });
    for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      put_nibble_scales(block, words + kBytesStep * 18, b, v, out);
      out.sign_octets(b, v, load_word(words, 8 + b, v));
    });
  }
};

struct IQ3_XXS : DecoderOf<BlockIQ3_XXS, 256, 32, 62> {
  static void decode(const uint8_t* block, Decoded out) {
    const uint32_t* table = codebooks().iq3_xxs;
    const uint8_t* words = block + kHalfStep;
    for_sub_blocks<16>([&](int half, int v) SLUICE_INLINE_LAMBDA {
      UnsignedLanes index = load_word(words, half, v);
      SLUICE_NO_UNROLL for (int j = 0; j < 4; ++j, index >>= 8) {
        out.look_up(table, 4 * half + j, v, index & 255);
      }
    });
    for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      const UnsignedLanes w = load_word(words, 16 + b, v);
      out.put_scale(b, v, odd_scale(w >> 28) * block_scale(block, v, 0.25f));
      out.sign_quads(b, v, eight_signs(w));
    });
  }
};

struct IQ3_S : DecoderOf<BlockIQ3_S, 256, 32, 15> {
  static void decode(const uint8_t* block, Decoded out) {
    const uint32_t* table = codebooks().iq3_s;
    const uint8_t* words = block + kHalfStep;
    for_sub_blocks<16>([&](int half, int v) SLUICE_INLINE_LAMBDA {
      UnsignedLanes low = load_word(words, half, v);
      UnsignedLanes high = load_word(words, 16 + half / 8, v) >> 4 * (half % 8);
      SLUICE_NO_UNROLL for (int j = 0; j < 4; ++j, low >>= 8, high >>= 1) {
        out.look_up(table, 4 * half + j, v, (low & 255) | (high & 1) << 8);
      }
    });
    for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      const UnsignedLanes s = load_word(words, 26, v) >> 4 * b & 15;
      out.put_scale(b, v, odd_scale(s) * block_scale(block, v, 1));
      out.sign_quads(b, v, load_word(words, 18 + b, v));
    });
  }
};

// The upper three bits of an octet's index are kStep bits behind those of the one before.
template <int kStep>
SLUICE_INLINE void look_up_iq1(const uint8_t* words, Decoded out) {
  const uint64_t* table = codebooks().iq1;
  for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
    UnsignedLanes low = load_word(words, b, v);
    UnsignedLanes high = load_word(words, 8 + b / 2, v) >> 16 * (b % 2);
    SLUICE_NO_UNROLL for (int l = 0; l < 4; ++l, low >>= 8, high >>= kStep) {
      out.look_up(table, 4 * b + l, v, (low & 255) | (high & 7) << 8);
    }
  });
}

struct IQ1_S : DecoderOf<BlockIQ1_S, 256, 32, 9> {
  static void decode(const uint8_t* block, Decoded out) {
    const uint8_t* words = block + kHalfStep;
    look_up_iq1<3>(words, out);
    for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      const UnsignedLanes high = load_word(words, 8 + b / 2, v) >> 16 * (b % 2);
      out.put_scale(b, v, odd_scale(high >> 12 & 7) * block_scale(block, v, 0.125f));
      out.shift_octets<15, 0>(b, v, high);
    });
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
SLUICE_INLINE void put_iq1_m_scales(const uint8_t* words, int b, int v, F32 d, Decoded out) {
  const UnsignedLanes s = load_word(words, 12 + b / 4, v) >> (16 * (b / 2 % 2) + 6 * (b % 2));
  out.put_half_scale(2 * b, v, odd_scale(s & 7) * d);
  out.put_half_scale(2 * b + 1, v, odd_scale(s >> 3 & 7) * d);
}

struct IQ1_M : DecoderOf<BlockIQ1_M, 256, 16, 9> {
  static void decode(const uint8_t* words, Decoded out) {
    look_up_iq1<4>(words, out);
    for_sub_blocks<8>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      const UnsignedLanes high = load_word(words, 8 + b / 2, v) >> 16 * (b % 2);
      put_iq1_m_scales(words, b, v, iq1_m_scale(words, v), out);
      out.shift_octets<3, 4>(b, v, high);
    });
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
  static void decode(const uint8_t* words, Decoded out) {
    for_sub_blocks<4>([&](int half, int v) SLUICE_INLINE_LAMBDA {
      out.put_half_scale(half, v, scale(load_word(words, 0, v) >> 8 * half & 255));
      for (int i = 0; i < 2; ++i) {
        const Bytes both = bytes_of(load_word(words, 1 + 2 * half + i, v));
        put(4 * half + i, v, bits<0, 15>(both), out);
        put(4 * half + 2 + i, v, bits<4, 15>(both), out);
      }
    });
  }

 private:
  SLUICE_INLINE_METHOD static void put(int quad, int v, Bytes nibbles, Decoded out) {
    out.put_offset(quad, v, __builtin_bit_cast(LaneBytes, lookup16(kOffsetFp4.codes, nibbles)));
  }
  // Half of an E4M3 number without sign.
  SLUICE_INLINE_METHOD static F32 scale(UnsignedLanes e) {
    const UnsignedLanes magnitude = e & 127;
    const I32 normal = __builtin_bit_cast(I32, (magnitude << 20) + (119u << 23));
    const I32 subnormal = as_i32(to_f32(__builtin_bit_cast(I32, magnitude)) * splat(0x1p-10f));
    const Lanes is_subnormal = magnitude < every_lane(8), is_number = e != every_lane(127);
    const Lanes value =
        (lanes(subnormal) & is_subnormal) | (lanes(normal) & ~is_subnormal & is_number);
    return as_f32(lanes_of(value));
  }
};

struct Q1_0 : DecoderOf<BlockQ1_0, 128, 32, 1> {
  static void decode(const uint8_t* block, Decoded out) {
    const LaneBytes minus_one = __builtin_bit_cast(LaneBytes, every_lane(~0u));
    for_sub_blocks<4>([&](int b, int v) SLUICE_INLINE_LAMBDA {
      UnsignedLanes bits = load_word(block + kHalfStep, b, v);
      out.put_scale(b, v, block_scale(block, v, 1));
      SLUICE_NO_UNROLL for (int octet = 4 * b; octet < 4 * b + 4; ++octet, bits >>= 8) {
        out.put_signed(octet, v, {{minus_one, minus_one}}, bits);
      }
    });
  }
};

struct Q2_0 : DecoderOf<BlockQ2_0, 64, 32, 2> {
  static void decode(const uint8_t* block, Decoded out) {
    for_sub_blocks<4>([&](int half, int v) SLUICE_INLINE_LAMBDA {
      if (half % 2 == 0) out.put_scale(half / 2, v, block_scale(block, v, 1));
      UnsignedLanes w = load_word(block + kHalfStep, half, v);
      SLUICE_NO_UNROLL for (int quad = 4 * half; quad < 4 * half + 4; ++quad, w >>= 8) {
        // Two bits to the low end of each byte.
        const UnsignedLanes four = w & 255, two = four | four << 12;
        const UnsignedLanes codes = (two | two << 6) & 0x03030303u;
        out.put_offset(
            quad, v, __builtin_bit_cast(LaneBytes, codes) + static_cast<uint8_t>(kCodeOffset - 1));
      }
    });
  }
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
