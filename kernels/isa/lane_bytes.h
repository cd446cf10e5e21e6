// Shared by multiplications with weights in file layout: access to bytes inside 32-bit lanes, in
// the compiler's portable vectors, for scales stored together row by row; and software prefetch.
#pragma once

#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

typedef int32_t Lanes __attribute__((vector_size(4 * kLanes)));
typedef uint32_t UnsignedLanes __attribute__((vector_size(4 * kLanes)));

SLUICE_INLINE Lanes lanes(I32 a) {
  return __builtin_bit_cast(Lanes, a);
}
SLUICE_INLINE I32 lanes_of(Lanes a) {
  return __builtin_bit_cast(I32, a);
}
SLUICE_INLINE I32 lanes_of(Bytes a) {
  return __builtin_bit_cast(I32, a);
}

// Prefetches a line of memory that will be used soon.
SLUICE_INLINE void touch(const uint8_t* p) {
#if defined(__wasm__)  // no prefetch instruction: loads instead
  const uint8_t byte = *p;
  asm volatile("" ::"r"(byte));
#else
  prefetch(p);
#endif
}

// Byte kByte of each lane, and two bytes from there as 16-bit integers.
template <int kByte>
SLUICE_INLINE I32 byte_of(I32 a) {
  return __builtin_bit_cast(I32, __builtin_bit_cast(UnsignedLanes, a) >> 8 * kByte & 255);
}
template <int kByte>
SLUICE_INLINE I32 signed_byte_of(I32 a) {
  return lanes_of(lanes(shl<24 - 8 * kByte>(a)) >> 24);
}
template <int kByte>
SLUICE_INLINE I16 byte_pair_of(I32 a) {
  const Lanes low = lanes(byte_of<kByte>(a)), high = lanes(byte_of<kByte + 1>(a));
  return __builtin_bit_cast(I16, low | high << 16);
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
