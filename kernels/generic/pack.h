// Packed weights. A group holds kRowGroup rows: first the code bytes of all K-blocks, four bytes
// of each row in turn ([blocks][dword][row][4]), then what the scales need, row by row in the same
// way ([blocks][item][row]). Four bytes of a row fill one 32-bit lane, so a vector holds several
// rows and no sum ever crosses lanes. Two sequential streams, both aligned, about the file's size.
#pragma once

#include <string.h>

#include "kernels/blocks.h"
#include "kernels/generic/unroll.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kBytesStep = 4 * kRowGroup;  // from one dword of a row to its next
constexpr int kHalfStep = 2 * kRowGroup;   // from one 16-bit item to the next

// Four bytes of each row, for n_dwords; rows[r] points at row r's bytes.
SLUICE_INLINE void interleave(const uint8_t* const* rows, int n_dwords, uint8_t* out) {
  for (int j = 0; j < n_dwords; ++j) {
    for (int r = 0; r < kRowGroup; ++r) memcpy(out + 4 * r, rows[r] + 4 * j, 4);
    out += kBytesStep;
  }
}
SLUICE_INLINE void deinterleave(const uint8_t* in, int row, int n_dwords, void* out) {
  uint8_t* bytes = static_cast<uint8_t*>(out);
  for (int j = 0; j < n_dwords; ++j) memcpy(bytes + 4 * j, in + kBytesStep * j + 4 * row, 4);
}
// Item `index` of the scales, 16 or 8 bits wide from byte offset `base`.
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
