// QSF's own quantization types, 64 values per block: QSF2 QSF3 QSF4 QSFT. The interface is that of
// small_blocks.h, but packing shares its loop: it saves a kilobyte to download. The file has codes
// in the order of values. Packed, each half of a block is as many dwords as a code has bits, and a
// byte of a dword belongs to several quads:
//   QSF4        dword j: quad j and, in the high halves, quad j + 4
//   QSF2, QSFT  quad i in dword i % 2, bits i / 2 * 2 and the next one of a byte
//   QSF3        dword j: quads 2 j and 2 j + 1 in three bits each. The upper two bits are, of dword
//               0 and 1, the lower bits of quads 6 and 7, and of dword 2 their third bits
#pragma once

#include "kernels/generic/matmul.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// The codes of half a block.
template <int kBits>
struct QsfCodes {
  const uint8_t* q;
  SLUICE_INLINE_METHOD Bytes operator()(int v, int j) const {
    const Bytes planes = load_bytes(q + kBytesStep * (j % 2) + 4 * kLanes * v);
    return j < 2   ? bits<0, 3>(planes)
           : j < 4 ? bits<2, 3>(planes)
           : j < 6 ? bits<4, 3>(planes)
                   : bits<6, 3>(planes);
  }
};
template <>
struct QsfCodes<3> {
  const uint8_t* q;
  SLUICE_INLINE_METHOD Bytes operator()(int v, int j) const {
    const auto dword = [&](int i) SLUICE_INLINE_LAMBDA {
      return load_bytes(q + kBytesStep * i + 4 * kLanes * v);
    };
    if (j < 6) return j % 2 == 0 ? bits<0, 7>(dword(j / 2)) : bits<3, 7>(dword(j / 2));
    const Bytes low = bits<6, 3>(dword(j - 6)), third = dword(2);
    return low | (j == 6 ? bits<4, 4>(third) : bits<5, 4>(third));
  }
};
template <>
struct QsfCodes<4> : Nibbles {};

// The multiplication with blocks of codes of kBits bits and a minimum or, if !kMin, an offset of 1.
template <int kBits, bool kMin>
struct QsfProduct {
  static constexpr int kBlock = kQsfBlock, kCodeBytes = 8 * kBits, kScaleBytes = kMin ? 4 : 2;

  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    SLUICE_NO_UNROLL for (int half = 0; half < 2; ++half) {
      I32 isum[NV][T];
      F32 d[NV];
      dot_codes<NV, T, (1 << kBits) - 1, 0, 8, kMin ? -1 : 0, true>(x, half, QsfCodes<kBits>{q},
                                                                    isum);
      load_halves(s, 0, row0, d);
      accumulate(x, half, isum, d, acc);
      if constexpr (kMin) {
        F32 m[NV];
        load_halves(s, 1, row0, m);
        accumulate_min(x, half, m, acc);
      }
      q += kBytesStep * kBits;
    }
  }

 protected:
  // Code i of a packed row.
  SLUICE_INLINE_METHOD static int code(const uint8_t* q, int row, int i) {
    const int first = i / 32 * kBits, quad = i / 4 % 8;
    const auto field = [&](int dword, int from, int mask) SLUICE_INLINE_LAMBDA {
      return q[kBytesStep * (first + dword) + 4 * row + i % 4] >> from & mask;
    };
    if constexpr (kBits == 4) return field(quad % 4, quad / 4 * 4, 15);
    if constexpr (kBits == 2) return field(quad % 2, quad / 2 * 2, 3);
    return quad < 6 ? field(quad / 2, quad % 2 * 3, 7)
                    : field(quad - 6, 6, 3) | field(2, quad, 1) << 2;
  }
};

// A field of bits has an address: the dword, the byte in it, the place in the byte. Exchanging two
// bits of the addresses of all fields is one step. Lanes are rows.
SLUICE_INLINE void exchange(Dwords& x, uint32_t mask, int by) {
  const Dwords t = (x ^ (x >> by)) & mask;
  x ^= t ^ (t << by);
}
SLUICE_INLINE void exchange(Dwords& a, Dwords& b, uint32_t mask, int by) {
  const Dwords t = ((a >> by) ^ b) & mask;
  a ^= t << by;
  b ^= t;
}

// 16 bytes of each of four rows, from `offset` on, as load_columns returns them.
SLUICE_INLINE void columns_at(const uint8_t* const* rows, int offset, Dwords (&out)[4]) {
  const uint8_t* const at[4] = {rows[0] + offset, rows[1] + offset, rows[2] + offset,
                                rows[3] + offset};
  load_columns(at, out);
}
// Stores dwords of four rows; q points at the first row's.
SLUICE_INLINE void put_columns(const Dwords* columns, int n, uint8_t* q) {
  SLUICE_UNROLL for (int j = 0; j < n; ++j) {
    memcpy(q + kBytesStep * j, &columns[j], sizeof columns[j]);
  }
}

// Codes of two bits, x[p] those from 16 p on in order, become the dwords of both halves.
SLUICE_INLINE void put_planes(Dwords (&x)[4], uint8_t* q) {
  SLUICE_UNROLL for (int p = 0; p < 4; ++p) {
    exchange(x[p], 0x00cc00ccu, 6);
    exchange(x[p], 0x0000f0f0u, 12);
  }
  exchange(x[0], x[1], 0x33333333u, 2);
  exchange(x[2], x[3], 0x33333333u, 2);
  SLUICE_UNROLL for (int j = 0; j < 4; ++j) exchange(x[j], 0x0c0c0c0cu, 2);
  put_columns(x, 4, q);
}

// These pack the codes of four blocks; rows point at the blocks' codes.
SLUICE_NOINLINE void pack_two_bits(const uint8_t* const* rows, uint8_t* q) {
  Dwords x[4];
  columns_at(rows, offsetof(BlockQSF2, qs), x);
  put_planes(x, q);
}
SLUICE_NOINLINE void pack_three_bits(const uint8_t* const* rows, uint8_t* q) {
  constexpr int kCodes = offsetof(BlockQSF3, qs);
  Dwords first[4], last[4];
  columns_at(rows, kCodes, first);
  columns_at(rows, kCodes + 8, last);
  const Dwords x[7] = {first[0], first[1], first[2], first[3], last[2], last[3], {}};
  for (int half = 0; half < 2; ++half, q += kBytesStep * 3) {
    Dwords out[3] = {};
    SLUICE_NO_UNROLL for (int quad = 0; quad < 8; ++quad) {
      const int bit = 96 * half + 12 * quad, from = bit % 32;
      // Shifted twice, since a shift by 32 is undefined.
      const Dwords bits = x[bit / 32] >> from | x[bit / 32 + 1] << (31 - from) << 1;
      const Dwords codes =
          (bits & 7u) | (bits << 5 & 0x700u) | (bits << 10 & 0x70000u) | (bits << 15 & 0x7000000u);
      if (quad < 6) {
        out[quad / 2] |= codes << quad % 2 * 3;
      } else {
        out[quad - 6] |= (codes & every(3)) << 6;
        out[2] |= (codes >> 2 & every(1)) << quad;
      }
    }
    put_columns(out, 3, q);
  }
}
SLUICE_NOINLINE void pack_four_bits(const uint8_t* const* rows, uint8_t* q) {
  constexpr int kCodes = offsetof(BlockQSF4, qs);
  SLUICE_NO_UNROLL for (int half = 0; half < 2; ++half, q += kBytesStep * 4) {
    Dwords x[4];
    columns_at(rows, kCodes + 16 * half, x);
    SLUICE_UNROLL for (int d = 0; d < 4; ++d) {
      exchange(x[d], 0x0000ff00u, 8);
      exchange(x[d], 0x00f000f0u, 4);
    }
    exchange(x[0], x[2], 0x0f0f0f0fu, 4);
    exchange(x[1], x[3], 0x0f0f0f0fu, 4);
    const Dwords out[4] = {x[0], x[2], x[1], x[3]};
    put_columns(out, 4, q);
  }
}
SLUICE_NOINLINE void pack_ternary(const uint8_t* const* rows, uint8_t* q) {
  static_assert(offsetof(BlockQSFT, zeros) == offsetof(BlockQSFT, signs) + 8);
  Dwords x[4];  // signs, then zeros
  columns_at(rows, offsetof(BlockQSFT, signs), x);
  Dwords codes[4] = {x[2], ~(x[0] | x[2]), x[3], ~(x[1] | x[3])};
  SLUICE_UNROLL for (int half = 0; half < 2; ++half) {
    exchange(codes[2 * half], codes[2 * half + 1], 0x0000ffffu, 16);
  }
  SLUICE_UNROLL for (int p = 0; p < 4; ++p) {
    exchange(codes[p], 0x0000ff00u, 8);
    exchange(codes[p], 0x00f000f0u, 4);
    exchange(codes[p], 0x0c0c0c0cu, 2);
    exchange(codes[p], 0x22222222u, 1);
  }
  put_planes(codes, q);
}

struct QsfPacker {
  void (*pack_codes)(const uint8_t* const* rows, uint8_t* q);
  int bytes;   // of a block in the file
  int halves;  // it begins with: d, and perhaps m
};
// See Quantized::pack_group.
SLUICE_NOINLINE void pack_qsf(const QsfPacker& k, const void* src, int32_t n_rows, int64_t cols,
                              uint8_t* dst) {
  static constexpr uint8_t kZero[sizeof(BlockQSF4)] = {};
  const int64_t n_blocks = cols / kQsfBlock, row_bytes = n_blocks * k.bytes;
  const uint8_t* rows[kRowGroup];
  for (int r = 0; r < kRowGroup; ++r) {
    rows[r] = r < n_rows ? static_cast<const uint8_t*>(src) + r * row_bytes : kZero;
  }
  const int chunk = 2 / k.halves;  // kChunk
  for (int64_t left = n_blocks; left > 0; left -= chunk) {
    const int n = static_cast<int>(min_i64(left, chunk));
    uint8_t* s = dst;
    dst += kHalfStep * k.halves * n;
    for (int i = 0; i < n; ++i) {
      for (int r = 0; r < n_rows; ++r) prefetch(rows[r] + kRowGroup * row_bytes);
      for (int half = 0; half < k.halves; ++half, s += kHalfStep) {
        for (int r = 0; r < kRowGroup; ++r) memcpy(s + 2 * r, rows[r] + 2 * half, 2);
      }
      for (int r = 0; r < kRowGroup; r += 4) k.pack_codes(rows + r, dst + 4 * r);
      for (int r = 0; r < n_rows; ++r) rows[r] += k.bytes;
      dst += kRowGroup * (k.bytes - 2 * k.halves);
    }
  }
}

// x = d * q + m.
template <class B, Type TYPE, int kBits, auto pack_codes>
struct QsfLine : QsfProduct<kBits, true> {
  using Block = B;
  using Unpacked = B;
  static constexpr Type kType = TYPE;
  static constexpr QsfPacker kPacker = {pack_codes, sizeof(B), 2};

  static void unpack(const uint8_t* q, const uint8_t* s, int row, B& out) {
    memset(out.qs, 0, sizeof out.qs);
    for (int i = 0; i < kQsfBlock; ++i) {
      const int at = kBits * i, bits = QsfLine::code(q, row, i) << at % 8;
      out.qs[at / 8] = static_cast<uint8_t>(out.qs[at / 8] | bits);
      if (at % 8 + kBits > 8) out.qs[at / 8 + 1] = static_cast<uint8_t>(bits >> 8);
    }
    out.d = get_half(s, 0, row);
    out.m = get_half(s, 1, row);
  }
};
using QSF2 = QsfLine<BlockQSF2, Type::kQSF2, 2, pack_two_bits>;
using QSF3 = QsfLine<BlockQSF3, Type::kQSF3, 3, pack_three_bits>;
using QSF4 = QsfLine<BlockQSF4, Type::kQSF4, 4, pack_four_bits>;

// x = d * (q - 1).
struct QSFT : QsfProduct<2, false> {
  using Block = BlockQSFT;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQSFT;
  static constexpr QsfPacker kPacker = {pack_ternary, sizeof(Block), 1};

  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    for (int i = 0; i < 8; ++i) {
      int signs = 0, zeros = 0;
      for (int bit = 0; bit < 8; ++bit) {
        const int value = code(q, row, 8 * i + bit);
        signs |= (value == 0 ? 1 : 0) << bit;
        zeros |= (value == 1 ? 1 : 0) << bit;
      }
      out.signs[i] = static_cast<uint8_t>(signs);
      out.zeros[i] = static_cast<uint8_t>(zeros);
    }
    out.d = get_half(s, 0, row);
  }
};

template <class K>
struct QsfOps : Quantized<K> {
  static_assert(kChunk<K> == 2 / K::kPacker.halves);
  static void pack_group(const void* src, int32_t n_rows, int64_t cols, void* dst) {
    pack_qsf(K::kPacker, src, n_rows, cols, static_cast<uint8_t*>(dst));
  }
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
