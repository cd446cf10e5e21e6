// Where decoders of the codebook types, of one and two bits, and of NVFP4 write (decoded_types.h):
// int8 codes and f32 scales of a packed block of a row group. Every lane is a row.
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
  return __builtin_bit_cast(
      LaneBytes, (0 - (high >> bit & constant_lanes<1>())) | constant_lanes<0x01010101u>());
}

// Scales of the halves of a sub-block, or twice the one that they have in common.
struct SubScales {
  F32 half[2];
};
SLUICE_INLINE SubScales in_common(F32 scale) {
  return {{scale, scale}};
}

struct Octet {
  LaneBytes quad[2];
};
// From two vectors that have eight bytes of each row, in the order of look_up().
SLUICE_INLINE Octet octet_of(UnsignedLanes a, UnsignedLanes b) {
  constexpr auto kAll = std::make_integer_sequence<int, kLanes>();
  return {{__builtin_bit_cast(LaneBytes, alternate<0>(a, b, kAll)),
           __builtin_bit_cast(LaneBytes, alternate<1>(a, b, kAll))}};
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

  SLUICE_INLINE_METHOD void put_half_scales(int b, int v, const SubScales& scales) const {
    SLUICE_UNROLL for (int i = 0; i < 2; ++i) put_half_scale(2 * b + i, v, scales.half[i]);
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
  SLUICE_INLINE_METHOD Octet take(int octet, int v) const {
    return octet_of(__builtin_bit_cast(UnsignedLanes, get(2 * octet, v)),
                    __builtin_bit_cast(UnsignedLanes, get(2 * octet + 1, v)));
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

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
