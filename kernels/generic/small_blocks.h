// Weight types with 32 values to a block: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL MXFP4. Each is a struct
// of what the drivers in matmul.h need: the file block, the packed bytes per row and block, pack
// and unpack of a block of kRowGroup rows, and `mul`, the block's product for NV vectors of rows
// and T tokens: q points at the first vector's codes, s at the scales of the whole group, where
// row0 is the first vector's first row. The packed codes are the file's own bytes, interleaved.
#pragma once

#include <stddef.h>

#include "kernels/generic/subblock.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

template <class Block, int kItem>
SLUICE_INLINE void interleave_field(const Block* const* rows, const uint8_t* (&fields)[kRowGroup]) {
  for (int r = 0; r < kRowGroup; ++r) fields[r] = reinterpret_cast<const uint8_t*>(rows[r]) + kItem;
}

// Nibble dword j of NV vectors: quads 0..3 are the low halves, 4..7 the high ones.
struct Nibbles {
  const uint8_t* q;
  template <class V, class J>
  SLUICE_INLINE_METHOD Bytes operator()(V v, J) const {
    constexpr int j = J::value;
    const Bytes raw = load_bytes(q + kBytesStep * (j % 4) + 4 * kLanes * v);
    return bits<(j < 4 ? 0 : 4), 15>(raw);
  }
};

// As Nibbles, with the fifth bits in dword 4: byte i, bit j belongs to byte i of quad j.
struct FiveBits {
  const uint8_t* q;
  template <class V, class J>
  SLUICE_INLINE_METHOD Bytes operator()(V v, J) const {
    constexpr int j = J::value;
    const Bytes high = load_bytes(q + kBytesStep * 4 + 4 * kLanes * v);
    return Nibbles{q}(v, J{}) | bits<j - 4, 16>(high);
  }
};

// 16-bit floats of item `index`, for NV vectors of rows from row `row0` of the group.
template <int NV>
SLUICE_INLINE void load_halves(const uint8_t* s, int index, int row0, F32 (&out)[NV]) {
  unroll<NV>([&](auto v) SLUICE_INLINE_LAMBDA {
    out[v] = load_f16(s + kHalfStep * index + 2 * (row0 + kLanes * v));
  });
}

struct Q4_0 {
  using Block = BlockQ4_0;
  static constexpr Type kType = Type::kQ4_0;
  static constexpr int kBlock = 32, kCodeBytes = 16, kScaleBytes = 2;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    const uint8_t* qs[kRowGroup];
    interleave_field<Block, offsetof(Block, qs)>(rows, qs);
    interleave(qs, 4, q);
    for (int r = 0; r < kRowGroup; ++r) put_half(s, 0, r, rows[r]->d);
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    deinterleave(q, row, 4, out.qs);
    out.d = get_half(s, 0, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    I32 isum[NV][T];
    F32 d[NV];
    dot_codes<NV, T, 15, 0, 8, 3, true>(x, 0, Nibbles{q}, isum);
    load_halves(s, 0, row0, d);
    accumulate(x, 0, isum, d, acc);
  }
};

struct Q8_0 {
  using Block = BlockQ8_0;
  static constexpr Type kType = Type::kQ8_0;
  static constexpr int kBlock = 32, kCodeBytes = 32, kScaleBytes = 2;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    const uint8_t* qs[kRowGroup];
    interleave_field<Block, offsetof(Block, qs)>(rows, qs);
    interleave(qs, 8, q);
    for (int r = 0; r < kRowGroup; ++r) put_half(s, 0, r, rows[r]->d);
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    deinterleave(q, row, 8, out.qs);
    out.d = get_half(s, 0, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    I32 isum[NV][T];
    F32 d[NV];
    dot_signed_codes<NV, T, false>(
        x, 0,
        [&](auto v, auto j)
            SLUICE_INLINE_LAMBDA { return load_bytes(q + kBytesStep * j + 4 * kLanes * v); },
        isum);
    load_halves(s, 0, row0, d);
    accumulate(x, 0, isum, d, acc);
  }
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
