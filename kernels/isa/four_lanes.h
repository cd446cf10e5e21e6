// What generic/direct.h needs beside the vocabulary, for targets of four lanes, in the compiler's
// portable vectors. The target provides load_row and load_signed_row: 16 activations, from column
// 16 half of a block, as its dot products want them beside 16 codes of one row.
#pragma once

#include <string.h>

#include "kernels/isa/vocabulary.h"

#define SLUICE_DIRECT 1

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// Has a line of memory fetched that will be used soon.
SLUICE_INLINE void touch(const uint8_t* p) {
#if defined(__wasm__)  // there is no instruction for it but to load
  const uint8_t byte = *p;
  asm volatile("" ::"r"(byte));
#else
  prefetch(p);
#endif
}

typedef int32_t Signed4 __attribute__((vector_size(16)));

SLUICE_INLINE Signed4 dwords(I32 a) {
  return __builtin_bit_cast(Signed4, a);
}
SLUICE_INLINE I32 lanes_of(Signed4 a) {
  return __builtin_bit_cast(I32, a);
}
SLUICE_INLINE I32 lanes_of(Bytes a) {
  return __builtin_bit_cast(I32, a);
}

// Lane i is the sum of the lanes of m[i].
SLUICE_INLINE I32 reduce_add_each(const I32 (&m)[kLanes]) {
  const Signed4 a = dwords(m[0]), b = dwords(m[1]), c = dwords(m[2]), d = dwords(m[3]);
  const Signed4 ab =
      __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
  const Signed4 cd =
      __builtin_shufflevector(c, d, 0, 2, 4, 6) + __builtin_shufflevector(c, d, 1, 3, 5, 7);
  return lanes_of(__builtin_shufflevector(ab, cd, 0, 2, 4, 6) +
                  __builtin_shufflevector(ab, cd, 1, 3, 5, 7));
}

// Byte kByte of each lane, and two bytes from there on as 16-bit integers.
template <int kByte>
SLUICE_INLINE I32 byte_of(I32 a) {
  typedef uint32_t Unsigned __attribute__((vector_size(16)));
  return __builtin_bit_cast(I32, __builtin_bit_cast(Unsigned, a) >> 8 * kByte & 255);
}
template <int kByte>
SLUICE_INLINE I32 signed_byte_of(I32 a) {
  return lanes_of(dwords(shl<24 - 8 * kByte>(a)) >> 24);
}
template <int kByte>
SLUICE_INLINE I16 byte_pair_of(I32 a) {
  const Signed4 low = dwords(byte_of<kByte>(a)), high = dwords(byte_of<kByte + 1>(a));
  return __builtin_bit_cast(I16, low | high << 16);
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
