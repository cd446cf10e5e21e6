// QSF's own quantization types. A block of 64 values is exactly two blocks of 32 of another type: a
// scale and a minimum with 4-bit codes (Q4_1), or -d, 0 and d as the codes 7, 8 and 9 (Q4_0). They
// are packed as these and use their kernels. The cost is memory: codes of 1 to 3 bits take 4 once
// packed. Files and stream slots hold the original blocks.
#pragma once

#include "kernels/generic/matmul.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// Spreads eight fields of `bits` bits, at most 4, to the low bits of eight bytes, in order.
SLUICE_INLINE uint64_t spread(uint64_t x, int bits) {
  constexpr uint64_t kLanes32 = 0x0000000100000001, kLanes16 = 0x0001000100010001;
  const auto apart = [&](int fields, uint64_t lanes) SLUICE_INLINE_LAMBDA {
    const uint64_t low = ((uint64_t{1} << fields * bits) - 1) * lanes;
    x = (x & low) | (x >> fields * bits & low) << 8 * fields;
  };
  apart(4, 1);
  apart(2, kLanes32);
  apart(1, kLanes16);
  return x;
}

SLUICE_INLINE uint64_t qsf_bits(const uint8_t* from, size_t bytes) {
  uint64_t x = 0;
  memcpy(&x, from, bytes);
  return x;
}

// Writes Block::qs of 32 values; code(j) returns the eight codes from 8 j on.
template <class Code>
SLUICE_INLINE void put_nibbles(uint8_t* qs, const Code& code) {
  for (int i = 0; i < 2; ++i) {
    const uint64_t both = code(i) | code(i + 2) << 4;
    memcpy(qs + 8 * i, &both, sizeof both);
  }
}

// Widens half `half` of a block of `bytes` bytes.
SLUICE_INLINE void widen(const uint8_t* block, size_t bytes, int half, BlockQ4_1* out) {
  memcpy(&out->d, block, sizeof out->d);
  memcpy(&out->m, block + sizeof out->d, sizeof out->m);
  const size_t bits = (bytes - 4) / 8;
  const uint8_t* codes = block + 4 + 4 * bits * static_cast<size_t>(half);
  put_nibbles(out->qs, [&](int j) SLUICE_INLINE_LAMBDA {
    return spread(qsf_bits(codes + bits * static_cast<size_t>(j), bits), static_cast<int>(bits));
  });
}
SLUICE_INLINE void widen(const uint8_t* block, size_t, int half, BlockQ4_0* out) {
  BlockQSFT b;
  memcpy(&b, block, sizeof b);
  out->d = b.d;
  put_nibbles(out->qs, [&](int j) SLUICE_INLINE_LAMBDA {
    const int at = 4 * half + j;
    const uint8_t sign = b.signs[at], some = static_cast<uint8_t>(~b.zeros[at]);
    return 0x0808080808080808 + spread(some & ~sign & 255u, 1) - spread(some & sign, 1);
  });
}

// Packs blocks of `bytes` bytes as K packs: see Quantized::pack_group.
template <class K>
SLUICE_NOINLINE void pack_widened(const void* src, int32_t n_rows, int64_t cols, void* dst,
                                  size_t bytes) {
  const size_t row_bytes = static_cast<size_t>(cols / kQsfBlock) * bytes;
  typename K::Block wide[kRowGroup] = {};
  const typename K::Block* rows[kRowGroup];
  for (int r = 0; r < kRowGroup; ++r) rows[r] = &wide[r];
  int half = 0;
  const uint8_t* block = static_cast<const uint8_t*>(src);
  for_each_block<K>(static_cast<uint8_t*>(dst), cols / K::kBlock, [&](uint8_t* q, uint8_t* s) {
    for (int r = 0; r < n_rows; ++r) {
      widen(block + static_cast<size_t>(r) * row_bytes, bytes, half, &wide[r]);
    }
    K::pack(rows, q, s);
    block += half == 1 ? bytes : 0;
    half ^= 1;
  });
}

template <class B>
struct WideType {
  using K = Q4_1;
};
template <>
struct WideType<BlockQSFT> {
  using K = Q4_0;
};

template <class B>
struct Widened : Quantized<typename WideType<B>::K> {
  static void pack_group(const void* src, int32_t n_rows, int64_t cols, void* dst) {
    pack_widened<typename WideType<B>::K>(src, n_rows, cols, dst, sizeof(B));
  }
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
