// Quantization types with 32 values per block: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL MXFP4. Each is a
// struct for the drivers in matmul.h: the file block, the packed bytes per row and block, pack and
// unpack of a block of kRowGroup rows, and `mul`. `mul` multiplies the block for NV vectors of rows
// and T tokens: q points at the first vector's codes, s at the scales of the whole group, and row0
// is the first vector's first row. Packed codes are the file's bytes, interleaved.
#pragma once

#include <stddef.h>

#include "kernels/generic/subblock.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

template <class Block, int kItem>
SLUICE_INLINE void interleave_field(const Block* const* rows, const uint8_t* (&fields)[kRowGroup]) {
  for (int r = 0; r < kRowGroup; ++r) fields[r] = reinterpret_cast<const uint8_t*>(rows[r]) + kItem;
}

// The codes of a group of blocks, whole dwords of the field `qs`.
template <class Block>
SLUICE_INLINE void pack_codes(const Block* const* rows, uint8_t* q) {
  const uint8_t* codes[kRowGroup];
  interleave_field<Block, offsetof(Block, qs)>(rows, codes);
  interleave(codes, sizeof(Block::qs) / 4, q);
}
template <class Block>
SLUICE_INLINE void unpack_codes(const uint8_t* q, int row, Block& out) {
  deinterleave(q, row, sizeof(Block::qs) / 4, &out.qs);
}

// Quads 0..3 are the low halves of the block's four dwords, 4..7 the high halves.
struct Nibbles {
  const uint8_t* q;
  SLUICE_INLINE_METHOD Bytes operator()(int v, int j) const {
    const Bytes raw = load_bytes(q + kBytesStep * (j % 4) + 4 * kLanes * v);
    return j < 4 ? bits<0, 15>(raw) : bits<4, 15>(raw);
  }
};

// The same with unshifted high halves, which are sixteen times too large.
struct HighNibbles {
  const uint8_t* q;
  SLUICE_INLINE_METHOD Bytes operator()(int v, int j) const {
    return bits<0, 0xf0>(load_bytes(q + kBytesStep * (j % 4) + 4 * kLanes * v));
  }
};
// dot_codes for 32 nibbles. kHigh: the high nibbles have their own sums, which are shifted once
// instead of the codes.
template <int NV, int T, int kOffsetShift, bool kHigh>
SLUICE_INLINE void dot_nibbles(const Tokens& x, const uint8_t* q, I32 (&out)[NV][T]) {
  if constexpr (kHigh) {
    I32 high[NV][T];
    start_all<0, 8, kOffsetShift>(x, 0, out);
    start_all<0, 8, -1>(x, 0, high);
    SLUICE_UNROLL for (int j = 0; j < 4; ++j) {
      dot_quad(x, 0, j, Nibbles{q}, out);
      dot_quad(x, 0, 4 + j, HighNibbles{q}, high);
    }
    SLUICE_UNROLL for (int t = 0; t < T; ++t) {
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) out[v][t] = out[v][t] + shr<4>(high[v][t]);
    }
  } else {
    dot_codes<NV, T, 15, 0, 8, kOffsetShift, true>(x, 0, Nibbles{q}, out);
  }
}

// Moves bit `from` of every byte to bit kTo and clears the others.
template <int kTo>
SLUICE_INLINE Bytes move_bit(Bytes a, int from) {
  switch (from) {  // a constant once loops are unrolled
    case 0:
      return bits<0 - kTo, 1 << kTo>(a);
    case 1:
      return bits<1 - kTo, 1 << kTo>(a);
    case 2:
      return bits<2 - kTo, 1 << kTo>(a);
    case 3:
      return bits<3 - kTo, 1 << kTo>(a);
    case 4:
      return bits<4 - kTo, 1 << kTo>(a);
    case 5:
      return bits<5 - kTo, 1 << kTo>(a);
    case 6:
      return bits<6 - kTo, 1 << kTo>(a);
    default:
      return bits<7 - kTo, 1 << kTo>(a);
  }
}

// As Nibbles, with fifth bits in dword 4: bit j of byte i is for byte i of quad j.
struct FiveBits {
  const uint8_t* q;
  SLUICE_INLINE_METHOD Bytes operator()(int v, int j) const {
    const Bytes all = load_bytes(q + kBytesStep * 4 + 4 * kLanes * v);
    return Nibbles{q}(v, j) | move_bit<4>(all, j);
  }
};

// 16-bit floats of item `index`, for NV vectors of rows from row `row0` of the group.
template <int NV>
SLUICE_INLINE void load_halves(const uint8_t* s, int index, int row0, F32 (&out)[NV]) {
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    out[v] = load_scale(s + kHalfStep * index + 2 * (row0 + kLanes * v));
  }
}

// The 32 fifth bits of a block in the order of FiveBits: bit k goes to byte k % 4, bit k / 4. That
// is "even bits to the low half, odd bits to the high half" twice. The inverse undoes the steps.
SLUICE_INLINE uint32_t swap_bits(uint32_t x, uint32_t mask, int by) {
  const uint32_t t = (x ^ (x >> by)) & mask;
  return x ^ t ^ (t << by);
}
SLUICE_INLINE uint32_t split_even_odd(uint32_t x) {
  x = swap_bits(x, 0x22222222u, 1);
  x = swap_bits(x, 0x0c0c0c0cu, 2);
  x = swap_bits(x, 0x00f000f0u, 4);
  return swap_bits(x, 0x0000ff00u, 8);
}
SLUICE_INLINE uint32_t join_even_odd(uint32_t x) {
  x = swap_bits(x, 0x0000ff00u, 8);
  x = swap_bits(x, 0x00f000f0u, 4);
  x = swap_bits(x, 0x0c0c0c0cu, 2);
  return swap_bits(x, 0x22222222u, 1);
}
SLUICE_INLINE void put_fifth_bits(uint8_t* q, int row, const uint8_t* qh) {
  uint32_t x;
  memcpy(&x, qh, 4);
  x = split_even_odd(split_even_odd(x));
  memcpy(q + 4 * kBytesStep + 4 * row, &x, 4);
}
SLUICE_INLINE void get_fifth_bits(const uint8_t* q, int row, uint8_t* qh) {
  uint32_t x;
  memcpy(&x, q + 4 * kBytesStep + 4 * row, 4);
  x = join_even_odd(join_even_odd(x));
  memcpy(qh, &x, 4);
}

// A type of 32 codes in the dwords `qs`, fifth bits `qh` where its block has them, a scale `d`, and
// a minimum `m` where it has one.
template <class FileBlock>
struct SmallBlock {
  using Block = FileBlock;
  using Unpacked = Block;
  static constexpr bool kFifthBits = requires(Block b) { b.qh; };
  static constexpr bool kMinimum = requires(Block b) { b.m; };
  static constexpr int kBlock = 32, kCodeBytes = sizeof(Block::qs) + (kFifthBits ? 4 : 0),
                       kScaleBytes = kMinimum ? 4 : 2;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    pack_codes(rows, q);
    if constexpr (kFifthBits) {
      for (int r = 0; r < kRowGroup; ++r) put_fifth_bits(q, r, rows[r]->qh);
    }
    for (int r = 0; r < kRowGroup; ++r) {
      put_half(s, 0, r, rows[r]->d);
      if constexpr (kMinimum) put_half(s, 1, r, rows[r]->m);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    unpack_codes(q, row, out);
    if constexpr (kFifthBits) get_fifth_bits(q, row, out.qh);
    out.d = get_half(s, 0, row);
    if constexpr (kMinimum) out.m = get_half(s, 1, row);
  }
};

struct Q4_0 : SmallBlock<BlockQ4_0> {
  static constexpr Type kType = Type::kQ4_0;

  template <int NV, int T, bool kHigh = false>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    I32 isum[NV][T];
    F32 d[NV];
    dot_nibbles<NV, T, 3, kHigh>(x, q, isum);
    load_halves(s, 0, row0, d);
    accumulate(x, 0, isum, d, acc);
  }
};

struct Q4_1 : SmallBlock<BlockQ4_1> {
  static constexpr Type kType = Type::kQ4_1;

  template <int NV, int T, bool kHigh = false>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    I32 isum[NV][T];
    F32 d[NV], m[NV];
    dot_nibbles<NV, T, -1, kHigh>(x, q, isum);
    load_halves(s, 0, row0, d);
    accumulate(x, 0, isum, d, acc);
    load_halves(s, 1, row0, m);
    accumulate_min(x, 0, m, acc);
  }
};

struct Q5_0 : SmallBlock<BlockQ5_0> {
  static constexpr Type kType = Type::kQ5_0;

  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    I32 isum[NV][T];
    F32 d[NV];
    dot_codes<NV, T, 31, 0, 8, 4, true>(x, 0, FiveBits{q}, isum);
    load_halves(s, 0, row0, d);
    accumulate(x, 0, isum, d, acc);
  }
};

struct Q5_1 : SmallBlock<BlockQ5_1> {
  static constexpr Type kType = Type::kQ5_1;

  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    I32 isum[NV][T];
    F32 d[NV], m[NV];
    dot_codes<NV, T, 31, 0, 8, -1, true>(x, 0, FiveBits{q}, isum);
    load_halves(s, 0, row0, d);
    accumulate(x, 0, isum, d, acc);
    load_halves(s, 1, row0, m);
    accumulate_min(x, 0, m, acc);
  }
};

// Codes that index a table of signed values.
struct Iq4Codes {
  const uint8_t* q;
  SLUICE_INLINE_METHOD Bytes operator()(int v, int j) const {
    return lookup16(kIq4Values, Nibbles{q}(v, j));
  }
};

struct IQ4_NL : SmallBlock<BlockIQ4_NL> {
  static constexpr Type kType = Type::kIQ4_NL;

  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    I32 isum[NV][T];
    F32 d[NV];
    dot_signed_codes<NV, T, true>(x, 0, Iq4Codes{q}, isum);
    load_halves(s, 0, row0, d);
    accumulate(x, 0, isum, d, acc);
  }
};

// MXFP4 values plus 16: unsigned codes whose offset is a power of two.
inline constexpr int8_t kMxfp4Codes[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                           16, 15, 14, 13, 12, 10, 8,  4};
struct Mxfp4Codes {
  const uint8_t* q;
  SLUICE_INLINE_METHOD Bytes operator()(int v, int j) const {
    return lookup16(kMxfp4Codes, Nibbles{q}(v, j));
  }
};
// 2^(e - 128) as bfloat16. Exact; the two smallest are subnormal.
SLUICE_INLINE uint16_t mxfp4_scale(int e) {
  return static_cast<uint16_t>(e >= 2 ? (e - 1) << 7 : 0x20 << e);
}
SLUICE_INLINE uint8_t mxfp4_exponent(int scale) {
  return static_cast<uint8_t>(scale >= 0x80 ? (scale >> 7) + 1 : scale >> 6);
}

struct MXFP4 {
  using Block = BlockMXFP4;
  using Unpacked = Block;
  static constexpr Type kType = Type::kMXFP4;
  static constexpr int kBlock = 32, kCodeBytes = 16, kScaleBytes = 2;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    pack_codes(rows, q);
    for (int r = 0; r < kRowGroup; ++r) put_half(s, 0, r, mxfp4_scale(rows[r]->e));
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    unpack_codes(q, row, out);
    out.e = mxfp4_exponent(get_half(s, 0, row));
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    I32 isum[NV][T];
    F32 d[NV];
    dot_codes<NV, T, 28, 0, 8, 4, true>(x, 0, Mxfp4Codes{q}, isum);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      d[v] = load_bf16(s + 2 * (row0 + kLanes * v));
    }
    accumulate(x, 0, isum, d, acc);
  }
};

struct Q8_0 : SmallBlock<BlockQ8_0> {
  static constexpr Type kType = Type::kQ8_0;

  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    I32 isum[NV][T];
    F32 d[NV];
    dot_signed_codes<NV, T, false>(
        x, 0,
        [&](int v, int j)
            SLUICE_INLINE_LAMBDA { return load_bytes(q + kBytesStep * j + 4 * kLanes * v); },
        isum);
    load_halves(s, 0, row0, d);
    accumulate(x, 0, isum, d, acc);
  }
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
