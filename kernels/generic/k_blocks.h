// Quantization types with 256 values per block and integer scales for sub-blocks of 16 or 32: Q2_K
// Q3_K Q4_K Q5_K Q6_K IQ4_XS TQ1_0 TQ2_0. The interface is that of small_blocks.h. Packed codes are
// the file's bytes, interleaved. 6-bit scales become bytes, for three percent more memory and no
// bit extraction in the loop. One multiplication per sub-block and vector turns them into f32.
#pragma once

#include "kernels/generic/k_subblocks.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

struct Q4_K {
  using Block = BlockQ4_K;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQ4_K;
  static constexpr int kBlock = 256, kCodeBytes = 128, kScaleBytes = 16 + 2 * kSuperBytes;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    pack_codes(rows, q);
    put_scales_and_mins(rows, s);
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    unpack_codes(q, row, out);
    get_scales_and_mins(s, row, out.scales);
    out.d = get_super(s, 16, 0, row);
    out.dmin = get_super(s, 16, 1, row);
  }
  template <int NV, int T, bool kHigh = false>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV], part[NV][T];
    subtract_mins(s, row0, x, acc);
    clear(part);
    for (int c = 0; c < 4; ++c) {
      const uint8_t* qs = q + kBytesStep * 8 * c;
      mul_scaled<kCodeBytes, 2, 15, kHigh>(
          qs, s, row0, x, 2 * c,
          [](auto p, const uint8_t* at, int v, int j) SLUICE_INLINE_LAMBDA {
            constexpr int kFrom = 4 * decltype(p)::value;
            constexpr int kShift = kHigh ? 0 : kFrom, kMask = kHigh ? 15 << kFrom : 15;
            return plane<kShift, kMask>(at, j, v);
          },
          part);
    }
    load_supers(s, 16, 0, row0, d);
    accumulate_super(part, d, acc);
  }
};

// Codes, for each 64 values and half of their quads: a dword of fifth bits, then the four dwords of
// nibbles they belong to. Bit 2 * (quad % 4) + part of a byte is for that quad and sub-block. So
// one loop covers the block; the file's order needs another shift for each 64 values.
struct Q5_K {
  using Block = BlockQ5_K;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQ5_K;
  static constexpr int kBlock = 256, kCodeBytes = 160, kScaleBytes = 16 + 2 * kSuperBytes;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    for (int r = 0; r < kRowGroup; r += 4) {
      SLUICE_UNROLL for (int half = 0; half < 2; ++half) {
        Dwords planes[4];
        columns_of(rows + r, offsetof(Block, qh) + static_cast<size_t>(16 * half), planes);
        SLUICE_UNROLL for (int c = 0; c < 4; ++c) {
          Dwords fifths = {};
          SLUICE_UNROLL for (int k = 0; k < 4; ++k) {
            fifths |= ((planes[k] >> (2 * c)) & every(3)) << (2 * k);
          }
          memcpy(q + kBytesStep * 5 * (2 * c + half) + 4 * r, &fifths, sizeof fifths);
        }
      }
    }
    const uint8_t* codes[kRowGroup];
    interleave_field<Block, offsetof(Block, qs)>(rows, codes);
    for (int i = 0; i < 8; ++i) {
      interleave_4(codes, q + kBytesStep * (5 * i + 1));
      for (const uint8_t*& row : codes) row += 16;
    }
    put_scales_and_mins(rows, s);
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    uint32_t planes[8] = {};
    for (int i = 0; i < 8; ++i) {
      const uint32_t fifths = get_dword(q, 5 * i, row);
      for (int k = 0; k < 4; ++k) {
        planes[4 * (i % 2) + k] |= ((fifths >> (2 * k)) & every(3)) << (i / 2 * 2);
      }
      deinterleave(q + kBytesStep * (5 * i + 1), row, 4, out.qs + 16 * i);
    }
    memcpy(out.qh, planes, sizeof planes);
    get_scales_and_mins(s, row, out.scales);
    out.d = get_super(s, 16, 0, row);
    out.dmin = get_super(s, 16, 1, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV], part[NV][T];
    subtract_mins(s, row0, x, acc);
    clear(part);
    for (int c = 0; c < 4; ++c) {
      const uint8_t* qs = q + kBytesStep * 10 * c;
      mul_scaled<kCodeBytes, 2, 31>(
          qs, s, row0, x, 2 * c,
          [](auto sub_block, const uint8_t* at, int v, int j) SLUICE_INLINE_LAMBDA {
            constexpr int p = decltype(sub_block)::value;
            const Bytes fifths = load_bytes(at + kBytesStep * (j / 4 * 5) + 4 * kLanes * v);
            return plane<4 * p, 15>(at, j + j / 4 + 1, v) | move_bit<4>(fifths, 2 * (j % 4) + p);
          },
          part);
    }
    load_supers(s, 16, 0, row0, d);
    accumulate_super(part, d, acc);
  }
};

// Codes, for each half of the block and quad: three dwords with the codes of parts 0 to 2, and in
// their upper two bits the code of part 3. That takes fewer steps from memory to codes than the
// file's nibbles and pairs of bits.
struct Q6_K {
  using Block = BlockQ6_K;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQ6_K;
  static constexpr int kBlock = 256, kCodeBytes = 192, kScaleBytes = 16 + kWholeSuper;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    for (int r = 0; r < kRowGroup; r += 4) {
      for (int i = 0; i < 4; ++i) {  // 32 columns of each half of a block: four of its quads
        const int half = i / 2, first = 16 * (i % 2);
        Dwords low0[4], low1[4], high4[4];
        columns_of(rows + r, offsetof(Block, ql) + static_cast<size_t>(64 * half + first), low0);
        columns_of(rows + r, offsetof(Block, ql) + static_cast<size_t>(64 * half + 32 + first),
                   low1);
        columns_of(rows + r, offsetof(Block, qh) + static_cast<size_t>(32 * half + first), high4);
        SLUICE_UNROLL for (int j = 0; j < 4; ++j) {
          const Dwords high = high4[j];
          const Dwords last = ((low1[j] >> 4) & every(15)) | ((high >> 2) & every(48));
          const Dwords three[3] = {
              (low0[j] & every(15)) | ((high << 4) & every(48)) | ((last << 6) & every(192)),
              (low1[j] & every(15)) | ((high << 2) & every(48)) | ((last << 4) & every(192)),
              ((low0[j] >> 4) & every(15)) | (high & every(48)) | ((last << 2) & every(192))};
          uint8_t* out = q + kBytesStep * 3 * (4 * i + j) + 4 * r;
          SLUICE_UNROLL for (int k = 0; k < 3; ++k) memcpy(out + kBytesStep * k, &three[k], 16);
        }
      }
      Dwords scales[4];
      columns_of(rows + r, offsetof(Block, scales), scales);
      SLUICE_UNROLL for (int i = 0; i < 4; ++i) put_four_items(scales[i], s, 4 * i, r);
      const f16 d[4] = {rows[r]->d, rows[r + 1]->d, rows[r + 2]->d, rows[r + 3]->d};
      put_supers(join_halves(d), s, 16, 0, r);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    for (int i = 0; i < 16; ++i) {
      const int half = i / 8, quad = i % 8;
      const uint32_t in[3] = {get_dword(q, 3 * i, row), get_dword(q, 3 * i + 1, row),
                              get_dword(q, 3 * i + 2, row)};
      const uint32_t last =
          ((in[0] >> 6) & every(3)) | ((in[1] >> 4) & every(12)) | ((in[2] >> 2) & every(48));
      const uint32_t low[2] = {(in[0] & every(15)) | (in[2] & every(15)) << 4,
                               (in[1] & every(15)) | (last & every(15)) << 4};
      const uint32_t high = ((in[0] >> 4) & every(3)) | ((in[1] >> 2) & every(12)) |
                            (in[2] & every(48)) | ((last << 2) & every(192));
      memcpy(out.ql + 64 * half + 4 * quad, &low[0], 4);
      memcpy(out.ql + 64 * half + 32 + 4 * quad, &low[1], 4);
      memcpy(out.qh + 32 * half + 4 * quad, &high, 4);
    }
    for (int j = 0; j < 16; ++j) out.scales[j] = static_cast<int8_t>(get_byte(s, j, row));
    out.d = get_super(s, 16, 0, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV], part[NV][T];
    clear(part);
    for (int h = 0; h < 2; ++h) {
      const uint8_t* three = q + kBytesStep * 24 * h;
      mul_signed_halves<kCodeBytes, 4, 32, 5>(
          three, s, row0, x, 4 * h,
          [](auto sub_block, const uint8_t* at, int v, int j) SLUICE_INLINE_LAMBDA {
            constexpr int p = decltype(sub_block)::value;
            if constexpr (p < 3) {
              return plane<0, 63>(at, 3 * j + p, v);
            } else {
              return plane<6, 3>(at, 3 * j, v) | plane<4, 12>(at, 3 * j + 1, v) |
                     plane<2, 48>(at, 3 * j + 2, v);
            }
          },
          part);
    }
    load_supers(s, 16, 0, row0, d);
    accumulate_super(part, d, acc);
  }
};

// The sixteen 6-bit scales of Q3_K minus 32, and back.
SLUICE_INLINE void put_q3_scales(const uint8_t* scales, uint8_t* s, int row) {
  for (int j = 0; j < 16; ++j) {
    const int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
    put_byte(s, j, row, (low | ((scales[8 + j % 4] >> (2 * (j / 4))) & 3) << 4) - 32);
  }
}
SLUICE_INLINE void get_q3_scales(const uint8_t* s, int row, uint8_t* scales) {
  for (int j = 0; j < 12; ++j) scales[j] = 0;
  for (int j = 0; j < 16; ++j) {
    const int value = static_cast<int8_t>(get_byte(s, j, row)) + 32;
    uint8_t& low = scales[j % 8];
    uint8_t& high = scales[8 + j % 4];
    low = static_cast<uint8_t>(low | (value & 15) << (4 * (j / 8)));
    high = static_cast<uint8_t>(high | (value >> 4) << (2 * (j / 4)));
  }
}

// Codes, for each 128 values and two quads: a dword of third bits, bit 4 * (quad % 2) + part, and
// the quads' dwords of two-bit planes. See Q5_K.
struct Q3_K {
  using Block = BlockQ3_K;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQ3_K;
  static constexpr int kBlock = 256, kCodeBytes = 96, kScaleBytes = 16 + kWholeSuper;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    for (int r = 0; r < kRowGroup; ++r) {
      for (int i = 0; i < 8; ++i) {
        const int half = i / 4 * 4, k = i % 4;
        const uint32_t even = load_dword(rows[r]->hmask + 8 * k) >> half;
        const uint32_t odd = load_dword(rows[r]->hmask + 8 * k + 4) >> half;
        put_dword(q, 3 * i, r, (even & every(15)) | (odd & every(15)) << 4);
        put_dword(q, 3 * i + 1, r, load_dword(rows[r]->qs + 8 * i));
        put_dword(q, 3 * i + 2, r, load_dword(rows[r]->qs + 8 * i + 4));
      }
      put_q3_scales(rows[r]->scales, s, r);
      put_super(s, 16, 0, r, rows[r]->d);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    uint32_t thirds[8] = {};
    for (int i = 0; i < 8; ++i) {
      const int half = i / 4 * 4, k = i % 4;
      const uint32_t both = get_dword(q, 3 * i, row);
      thirds[2 * k] |= (both & every(15)) << half;
      thirds[2 * k + 1] |= ((both >> 4) & every(15)) << half;
      deinterleave(q + kBytesStep * (3 * i + 1), row, 2, out.qs + 8 * i);
    }
    memcpy(out.hmask, thirds, sizeof thirds);
    get_q3_scales(s, row, out.scales);
    out.d = get_super(s, 16, 0, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV], part[NV][T];
    clear(part);
    for (int h = 0; h < 2; ++h) {
      const uint8_t* qs = q + kBytesStep * 12 * h;
      mul_signed_halves<kCodeBytes, 4, 4, 2>(
          qs, s, row0, x, 4 * h,
          [](auto sub_block, const uint8_t* at, int v, int j) SLUICE_INLINE_LAMBDA {
            constexpr int p = decltype(sub_block)::value;
            const Bytes thirds = load_bytes(at + kBytesStep * (j / 2 * 3) + 4 * kLanes * v);
            return plane<2 * p, 3>(at, j + j / 2 + 1, v) | move_bit<2>(thirds, 4 * (j % 2) + p);
          },
          part);
    }
    load_supers(s, 16, 0, row0, d);
    accumulate_super(part, d, acc);
  }
};

struct Q2_K {
  using Block = BlockQ2_K;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQ2_K;
  static constexpr int kBlock = 256, kCodeBytes = 64, kScaleBytes = 16 + 2 * kSuperBytes;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    pack_codes(rows, q);
    for (int r = 0; r < kRowGroup; ++r) {
      for (int j = 0; j < 16; ++j) put_byte(s, j, r, rows[r]->scales[j]);
      put_super(s, 16, 0, r, rows[r]->d);
      put_super(s, 16, 1, r, rows[r]->dmin);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    unpack_codes(q, row, out);
    for (int j = 0; j < 16; ++j) out.scales[j] = static_cast<uint8_t>(get_byte(s, j, row));
    out.d = get_super(s, 16, 0, row);
    out.dmin = get_super(s, 16, 1, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV], neg_dmin[NV];
    load_supers(s, 16, 0, row0, d);
    load_supers(s, 16, 1, row0, neg_dmin);
    negate(neg_dmin);
    for (int h = 0; h < 2; ++h) {
      const uint8_t* qs = q + kBytesStep * 8 * h;
      unroll<4>([&](auto part) SLUICE_INLINE_LAMBDA {
        constexpr int p = decltype(part)::value;
        mul_block(
            s, row0, x, 4 * h + p,
            [&](int v, int j) SLUICE_INLINE_LAMBDA { return plane<2 * p, 3>(qs, j, v); }, d,
            neg_dmin, acc);
      });
    }
  }

 private:
  // Two sub-blocks of 16, each with a scale and a minimum in one byte.
  template <int NV, int T, class F>
  SLUICE_INLINE_METHOD static void mul_block(const uint8_t* s, int row0, const Tokens& x, int b,
                                             const F& codes, const F32 (&d)[NV],
                                             const F32 (&neg_dmin)[NV], F32 (&acc)[NV][T]) {
    I32 isum0[NV][T], isum1[NV][T];
    F32 dw0[NV], dw1[NV], m0[NV], m1[NV];
    dot_codes<NV, T, 3, 0, 4, -1, false>(x, b, codes, isum0);
    dot_codes<NV, T, 3, 4, 4, -1, false>(x, b, codes, isum1);
    scale_bits<0, 15>(s, 2 * b, row0, d, dw0);
    scale_bits<0, 15>(s, 2 * b + 1, row0, d, dw1);
    accumulate_scaled_halves(x, b, isum0, isum1, dw0, dw1, acc);
    scale_bits<4, 15>(s, 2 * b, row0, neg_dmin, m0);
    scale_bits<4, 15>(s, 2 * b + 1, row0, neg_dmin, m1);
    SLUICE_UNROLL for (int t = 0; t < T; ++t) {
      const float* dsum = x.at(t, b).m.dsum16;
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
        acc[v][t] = mul_add(m0[v], splat(dsum[0]), acc[v][t]);
        acc[v][t] = mul_add(m1[v], splat(dsum[1]), acc[v][t]);
      }
    }
  }
};

struct IQ4_XS {
  using Block = BlockIQ4_XS;
  using Unpacked = Block;
  static constexpr Type kType = Type::kIQ4_XS;
  static constexpr int kBlock = 256, kCodeBytes = 128, kScaleBytes = 8 + kSuperBytes;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    pack_codes(rows, q);
    for (int r = 0; r < kRowGroup; ++r) {
      for (int j = 0; j < 8; ++j) {
        const int low = (rows[r]->scales_l[j / 2] >> (4 * (j % 2))) & 15;
        put_byte(s, j, r, (low | ((rows[r]->scales_h >> (2 * j)) & 3) << 4) - 32);
      }
      put_super(s, 8, 0, r, rows[r]->d);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    unpack_codes(q, row, out);
    unsigned high = 0, low = 0;
    for (int j = 0; j < 8; ++j) {
      const unsigned value = static_cast<unsigned>(static_cast<int8_t>(get_byte(s, j, row)) + 32);
      low |= (value & 15) << (4 * j);
      high |= (value >> 4) << (2 * j);
    }
    out.scales_h = static_cast<uint16_t>(high);
    memcpy(out.scales_l, &low, 4);
    out.d = get_super(s, 8, 0, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV];
    load_supers(s, 8, 0, row0, d);
    for (int b = 0; b < 8; ++b) {
      I32 isum[NV][T];
      F32 dw[NV];
      dot_signed_codes<NV, T, true>(x, b, Iq4Codes{q + kBytesStep * 4 * b}, isum);
      scale_signed(s, b, row0, d, dw);
      accumulate(x, b, isum, dw, acc);
    }
  }
};

struct TQ2_0 {
  using Block = BlockTQ2_0;
  using Unpacked = Block;
  static constexpr Type kType = Type::kTQ2_0;
  static constexpr int kBlock = 256, kCodeBytes = 64, kScaleBytes = kSuperBytes;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    pack_codes(rows, q);
    for (int r = 0; r < kRowGroup; ++r) {
      put_super(s, 0, 0, r, rows[r]->d);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    unpack_codes(q, row, out);
    out.d = get_super(s, 0, 0, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV];
    load_supers(s, 0, 0, row0, d);
    for (int h = 0; h < 2; ++h) {
      const uint8_t* qs = q + kBytesStep * 8 * h;
      unroll<4>([&](auto part) SLUICE_INLINE_LAMBDA {
        constexpr int p = decltype(part)::value;
        I32 isum[NV][T];
        dot_codes<NV, T, 3, 0, 8, 0, false>(
            x, 4 * h + p,
            [&](int v, int j) SLUICE_INLINE_LAMBDA { return plane<2 * p, 3>(qs, j, v); }, isum);
        accumulate(x, 4 * h + p, isum, d, acc);
      });
    }
  }
};

// Base-3 digits are packed like the two-bit planes of TQ2_0 and share its kernel: a fifth more
// memory, and no multiplication per weight.
struct TQ1_0 : TQ2_0 {
  using Block = BlockTQ1_0;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    BlockTQ2_0 planes[kRowGroup];
    const BlockTQ2_0* pointers[kRowGroup];
    for (int r = 0; r < kRowGroup; ++r) {
      to_planes(*rows[r], planes[r]);
      pointers[r] = &planes[r];
    }
    TQ2_0::pack(pointers, q, s);
  }

 private:
  static void put_digit(BlockTQ2_0& out, int i, int shifted_byte) {
    const int digit = (shifted_byte & 255) * 3 >> 8;
    uint8_t& byte = out.qs[32 * (i / 128) + i % 32];
    byte = static_cast<uint8_t>(byte | digit << (2 * (i % 128 / 32)));
  }
  static void to_planes(const Block& in, BlockTQ2_0& out) {
    memset(out.qs, 0, sizeof out.qs);
    out.d = in.d;
    int power = 1;
    for (int n = 0; n < 5; ++n) {
      for (int l = 0; l < 32; ++l) put_digit(out, 32 * n + l, in.qs[l] * power);
      for (int l = 0; l < 16; ++l) put_digit(out, 160 + 16 * n + l, in.qs[32 + l] * power);
      for (int l = 0; l < 4 && n < 4; ++l) put_digit(out, 240 + 4 * n + l, in.qh[l] * power);
      power *= 3;
    }
  }
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
