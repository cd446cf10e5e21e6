// Packed weights. A group holds kRowGroup rows. For each K-block (or for two or four: kChunk) it
// has the scales row by row ([item][row]), then the code bytes, four of each row in turn
// ([dword][row][4]). Four bytes of a row fill one 32-bit lane, so a vector holds several rows and
// no sum crosses lanes. A multiplication reads each byte once, front to back: one stream through
// the whole matrix, which prefetchers follow. Separate streams for codes and scales took nearly
// twice the time from memory. The size is about the file's.
#pragma once

#include <string.h>

#include "kernels/blocks.h"
#include "kernels/generic/unroll.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kBytesStep = 4 * kRowGroup;  // between consecutive dwords of a row
constexpr int kVecs = kRowGroup / kLanes;  // that hold a row group
constexpr int kHalfStep = 2 * kRowGroup;   // between consecutive 16-bit items

typedef uint32_t Dwords __attribute__((vector_size(16)));

// Transposes 16 bytes of each of four rows: dword i of row r goes to lane r of columns[i]. Streamed
// weights are packed for every prompt; dword by dword, packing took three times as long as the
// multiplication.
SLUICE_INLINE void load_columns(const uint8_t* const* rows, Dwords (&columns)[4]) {
  Dwords a, b, c, d;
  memcpy(&a, rows[0], 16);
  memcpy(&b, rows[1], 16);
  memcpy(&c, rows[2], 16);
  memcpy(&d, rows[3], 16);
  const Dwords ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Dwords cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Dwords ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Dwords cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  columns[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  columns[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  columns[2] = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
  columns[3] = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}
// Four consecutive f16, as load_scale and load_f16 expect. (A load of eight bytes would wait for
// four stores of two bytes.)
SLUICE_INLINE uint64_t join_halves(const f16 (&h)[4]) {
  return h[0] | static_cast<uint64_t>(h[1]) << 16 | static_cast<uint64_t>(h[2]) << 32 |
         static_cast<uint64_t>(h[3]) << 48;
}
// Interleaves four dwords of each row, from rows[r] on.
SLUICE_INLINE void interleave_4(const uint8_t* const (&rows)[kRowGroup], uint8_t* out) {
#if defined(SLUICE_WIDE_LANES)
  Bytes columns[4];
  transpose_rows(rows, columns);
  SLUICE_UNROLL for (int j = 0; j < 4; ++j) store_bytes(out + kBytesStep * j, columns[j]);
#else
  SLUICE_UNROLL for (int r = 0; r < kRowGroup; r += 4) {
    Dwords columns[4];
    load_columns(rows + r, columns);
    SLUICE_UNROLL for (int j = 0; j < 4; ++j) {
      memcpy(out + kBytesStep * j + 4 * r, &columns[j], 16);
    }
  }
#endif
}
// The same for n_dwords per row, a multiple of four.
SLUICE_INLINE void interleave(const uint8_t* const* rows, int n_dwords, uint8_t* out) {
  for (int j = 0; j < n_dwords; j += 4) {
    const uint8_t* at[kRowGroup];
    for (int r = 0; r < kRowGroup; ++r) at[r] = rows[r] + 4 * j;
    interleave_4(at, out + kBytesStep * j);
  }
}
SLUICE_INLINE void deinterleave(const uint8_t* in, int row, int n_dwords, void* out) {
  uint8_t* bytes = static_cast<uint8_t*>(out);
  for (int j = 0; j < n_dwords; ++j) memcpy(bytes + 4 * j, in + kBytesStep * j + 4 * row, 4);
}
// Stores dword `index` of row `row`; loads a dword of the file; makes one of four equal bytes.
SLUICE_INLINE void put_dword(uint8_t* q, int index, int row, uint32_t value) {
  memcpy(q + kBytesStep * index + 4 * row, &value, 4);
}
SLUICE_INLINE uint32_t load_dword(const uint8_t* p) {
  uint32_t value;
  memcpy(&value, p, 4);
  return value;
}
SLUICE_INLINE uint32_t get_dword(const uint8_t* q, int index, int row) {
  return load_dword(q + kBytesStep * index + 4 * row);
}
SLUICE_INLINE uint32_t every(uint32_t byte) {
  return byte * 0x01010101u;
}
// Stores and loads item `index` of the scales, 16 or 8 bits wide from byte offset `base`.
SLUICE_INLINE void put_half(uint8_t* s, int index, int row, uint16_t value) {
  memcpy(s + kHalfStep * index + 2 * row, &value, 2);
}
SLUICE_INLINE uint16_t get_half(const uint8_t* s, int index, int row) {
  uint16_t value;
  memcpy(&value, s + kHalfStep * index + 2 * row, 2);
  return value;
}
SLUICE_INLINE void put_byte(uint8_t* s, int index, int row, int value) {
  s[kRowGroup * index + row] = static_cast<uint8_t>(value);
}
SLUICE_INLINE int get_byte(const uint8_t* s, int index, int row) {
  return s[kRowGroup * index + row];
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
