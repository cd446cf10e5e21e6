// The scales of types with 256 values per block: packing and unpacking.
#pragma once

#include "kernels/generic/small_blocks.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// The scales of a whole block follow the n_bytes byte items of its sub-blocks: f16 as in the file,
// or f32 where reading f16 takes many instructions (kWideSupers).
constexpr int kSuperBytes = kWideSupers ? 4 : 2;
// Bytes of a scale that stands alone, with padding. So scales fill whole lines, each block's scales
// come before its codes (kChunk in matmul.h), and memory is read strictly forwards. Two blocks'
// scales before their codes cost 40 % of the bandwidth of Zen 4.
constexpr int kWholeSuper = 4;

SLUICE_INLINE void put_super(uint8_t* s, int n_bytes, int index, int row, f16 value) {
  uint8_t* at = s + kRowGroup * (n_bytes + kSuperBytes * index) + kSuperBytes * row;
  if constexpr (kWideSupers) {
    const float wide = reference::f16_to_f32(value);
    memcpy(at, &wide, sizeof wide);
  } else {
    memcpy(at, &value, sizeof value);
  }
}
SLUICE_INLINE f16 get_super(const uint8_t* s, int n_bytes, int index, int row) {
  const uint8_t* at = s + kRowGroup * (n_bytes + kSuperBytes * index) + kSuperBytes * row;
  if constexpr (kWideSupers) {
    float wide;
    memcpy(&wide, at, sizeof wide);
    return reference::f32_to_f16(wide);
  } else {
    f16 value;
    memcpy(&value, at, sizeof value);
    return value;
  }
}
template <int NV>
SLUICE_INLINE void load_supers(const uint8_t* s, int n_bytes, int index, int row0, F32 (&out)[NV]) {
  const uint8_t* at = s + kRowGroup * (n_bytes + kSuperBytes * index) + kSuperBytes * row0;
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    out[v] = load_super(at + kSuperBytes * kLanes * v);
  }
}

// The same for four rows, whose f16 are consecutive in `halves`.
SLUICE_INLINE void put_supers(uint64_t halves, uint8_t* s, int n_bytes, int index, int row) {
  uint8_t* at = s + kRowGroup * (n_bytes + kSuperBytes * index) + kSuperBytes * row;
  if constexpr (kWideSupers) {
    store(reinterpret_cast<float*>(at), load_f16(&halves));
  } else {
    memcpy(at, &halves, sizeof halves);
  }
}
// 16 bytes of each of four blocks, from `offset` on, as load_columns returns them.
template <class Block>
SLUICE_INLINE void columns_of(const Block* const* rows, size_t offset, Dwords (&out)[4]) {
  const uint8_t* at[4];
  for (int r = 0; r < 4; ++r) at[r] = reinterpret_cast<const uint8_t*>(rows[r]) + offset;
  load_columns(at, out);
}

// Stores byte j of lane r as item `index` + j of row `row` + r.
typedef uint8_t Bytes16 __attribute__((vector_size(16)));
SLUICE_INLINE void put_four_items(Dwords bytes, uint8_t* s, int index, int row) {
  const Bytes16 b = __builtin_bit_cast(Bytes16, bytes);
  const Bytes16 items =
      __builtin_shufflevector(b, b, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const Dwords dwords = __builtin_bit_cast(Dwords, items);
  SLUICE_UNROLL for (int j = 0; j < 4; ++j) {
    const uint32_t item = dwords[j];
    memcpy(s + kRowGroup * (index + j) + row, &item, sizeof item);
  }
}
// The lower 16 bits of all lanes, and the upper 16 bits.
struct Halves {
  uint64_t low, high;
};
SLUICE_INLINE Halves split_halves(Dwords lanes) {
  const Bytes16 b = __builtin_bit_cast(Bytes16, lanes);
  return __builtin_bit_cast(
      Halves, __builtin_shufflevector(b, b, 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
}

// The 6-bit scales and minimums of Q4_K and Q5_K, and back. Minimums are in pairs: [pair][row][2].
SLUICE_INLINE void put_four_mins(Dwords bytes, uint8_t* s, int pair, int row) {
  const Halves pairs = split_halves(bytes);
  uint8_t* at = s + kRowGroup * (8 + 2 * pair) + 2 * row;
  memcpy(at, &pairs.low, sizeof pairs.low);
  memcpy(at + 2 * kRowGroup, &pairs.high, sizeof pairs.high);
}
SLUICE_INLINE int get_min(const uint8_t* s, int j, int row) {
  return s[kRowGroup * (8 + j / 2 * 2) + 2 * row + j % 2];
}
// A block begins with d, dmin and twelve bytes of scales and minimums.
template <class Block>
SLUICE_INLINE void put_scales_and_mins(const Block* const* rows, uint8_t* s) {
  static_assert(offsetof(Block, scales) == 4 && sizeof(Block::scales) == 12);
  for (int r = 0; r < kRowGroup; r += 4) {
    Dwords head[4];
    columns_of(rows + r, 0, head);
    const Dwords low = head[1], high = head[2], both = head[3];
    put_four_items(low & every(63), s, 0, r);
    put_four_items((both & every(15)) | ((low >> 2) & every(48)), s, 4, r);
    put_four_mins(high & every(63), s, 0, r);
    put_four_mins(((both >> 4) & every(15)) | ((high >> 2) & every(48)), s, 2, r);
    const Halves supers = split_halves(head[0]);
    put_supers(supers.low, s, 16, 0, r);
    put_supers(supers.high, s, 16, 1, r);
  }
}
SLUICE_INLINE void get_scales_and_mins(const uint8_t* s, int row, uint8_t* scales) {
  for (int j = 0; j < 4; ++j) {
    const int s_high = get_byte(s, 4 + j, row), m_high = get_min(s, 4 + j, row);
    scales[j] = static_cast<uint8_t>(get_byte(s, j, row) | (s_high >> 4) << 6);
    scales[j + 4] = static_cast<uint8_t>(get_min(s, j, row) | (m_high >> 4) << 6);
    scales[j + 8] = static_cast<uint8_t>((s_high & 15) | (m_high & 15) << 4);
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
