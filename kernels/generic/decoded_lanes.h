// The steps of decoding packed blocks: words of kLanes rows, bytes of each lane, and signs. In the
// compiler's portable vectors, except where a target has a better instruction.
#pragma once

#include <utility>

#include "kernels/codebooks.h"
#include "kernels/generic/pack.h"
#include "kernels/isa/lane_bytes.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

typedef uint8_t LaneBytes __attribute__((vector_size(4 * kLanes)));

SLUICE_INLINE Bytes bytes_of(UnsignedLanes a) {
  return __builtin_bit_cast(Bytes, a);
}
SLUICE_INLINE UnsignedLanes every_lane(uint32_t x) {
  return UnsignedLanes{} + x;
}
// The same for constants: in WebAssembly from memory, see opaque().
template <uint32_t kWord>
SLUICE_INLINE UnsignedLanes constant_lanes() {
#if defined(__wasm__)
  alignas(16) static constexpr uint32_t kWords[4] = {kWord, kWord, kWord, kWord};
  return __builtin_bit_cast(UnsignedLanes, opaque(kWords));
#else
  return every_lane(kWord);
#endif
}
// Word `index` of the rows of vector v.
SLUICE_INLINE UnsignedLanes load_word(const uint8_t* words, int index, int v) {
  UnsignedLanes x;
  memcpy(&x, words + kBytesStep * index + 4 * kLanes * v, sizeof x);
  return x;
}
// kBits bits of each lane, from bit `from` on, moved to bit kTo.
template <int kBits, int kTo>
SLUICE_INLINE UnsignedLanes field(UnsignedLanes a, int from) {
  const UnsignedLanes moved = kTo == 0 || from >= kTo ? a >> (from - kTo) : a << (kTo - from);
  return moved & constant_lanes<((1u << kBits) - 1) << kTo>();
}
// 2 s + 1.
SLUICE_INLINE F32 odd_scale(UnsignedLanes s) {
  return to_f32(__builtin_bit_cast(I32, (s + s) | constant_lanes<1>()));
}

// The lanes of a vector as scalars, by way of memory: compilers would extract each with two
// shuffles. Stored eight at a time: on Intel, a load from the upper half of 64 bytes waits until
// their store has left the core.
struct Scalars {
  uint32_t lane[kLanes];
  SLUICE_INLINE_METHOD explicit Scalars(UnsignedLanes a) {
    typedef uint32_t Eight __attribute__((vector_size(32)));
    if constexpr (sizeof a == 2 * sizeof(Eight)) {
      const Eight half[2] = {part<Eight, 0>(a), part<Eight, 8>(a)};
      memcpy(lane, &half[0], sizeof half[0]);
      memcpy(lane + 8, &half[1], sizeof half[1]);
    } else {
      memcpy(lane, &a, sizeof lane);
    }
    if constexpr (kLanes > 4) asm("" : "+m"(lane));
  }
  SLUICE_INLINE_METHOD uint32_t operator[](int i) const { return lane[i]; }

 private:
  template <class Part, int kFirst, class V>
  SLUICE_INLINE_METHOD static Part part(V a) {
    return __builtin_shufflevector(a, a, kFirst, kFirst + 1, kFirst + 2, kFirst + 3, kFirst + 4,
                                   kFirst + 5, kFirst + 6, kFirst + 7);
  }
};

// The even (kOdd: 0) or odd dwords of each 16 bytes of a, then those of b.
template <int kOdd, int... kLane>
SLUICE_INLINE UnsignedLanes alternate(UnsignedLanes a, UnsignedLanes b,
                                      std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(
      a, b, (kLane / 4 * 4 + kLane % 4 / 2 * kLanes + kLane % 2 * 2 + kOdd)...);
}

// The lowest byte of each lane, four times.
template <int... kAt>
SLUICE_INLINE LaneBytes repeat_low_byte(LaneBytes a, std::integer_sequence<int, kAt...>) {
  return __builtin_shufflevector(a, a, (kAt / 4 * 4)...);
}
SLUICE_INLINE LaneBytes repeat_low_byte(UnsignedLanes a) {
#if defined(SLUICE_PERMUTE)
  alignas(16) static constexpr int8_t kLow[16] = {0, 0, 0, 0, 4,  4,  4,  4,
                                                  8, 8, 8, 8, 12, 12, 12, 12};
  return __builtin_bit_cast(LaneBytes, permute(bytes_of(a), kLow));
#endif
  return repeat_low_byte(__builtin_bit_cast(LaneBytes, a),
                         std::make_integer_sequence<int, 4 * kLanes>());
}
// Bit 4 * kHalf + i of byte i of each lane; all bits of a byte where that bit is set.
template <int kHalf>
SLUICE_INLINE LaneBytes own_bit() {
  return __builtin_bit_cast(LaneBytes,
                            constant_lanes < kHalf == 0 ? 0x08040201u : 0x80402010u > ());
}
template <int kHalf>
SLUICE_INLINE LaneBytes where_set(LaneBytes bits) {
  const LaneBytes own = own_bit<kHalf>();
  return __builtin_bit_cast(LaneBytes, (bits & own) == own);
}
// Byte i of each lane, negated if bit 4 * kHalf + i of that byte of `signs` is set.
template <int kHalf>
SLUICE_INLINE LaneBytes negate_signed(LaneBytes w, LaneBytes signs) {
#if defined(SLUICE_BYTE_MASKS)
  return __builtin_bit_cast(LaneBytes,
                            negate_where(__builtin_bit_cast(Bytes, w),
                                         __builtin_bit_cast(Bytes, signs & own_bit<kHalf>())));
#else
  const LaneBytes negative = where_set<kHalf>(signs);
  return (w ^ negative) - negative;
#endif
}

// Words with four times seven sign bits, to four bytes of eight.
SLUICE_INLINE UnsignedLanes eight_signs(UnsignedLanes w) {
  const UnsignedLanes halves =
      (w & constant_lanes<0x3fffu>()) | (w << 2 & constant_lanes<0x3fff0000u>());
  return with_even_parity(halves + (halves & constant_lanes<0x3f803f80u>()));
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
