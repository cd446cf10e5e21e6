// Weight types with 256 values to a block and integer scales for sub-blocks of 16 or 32: Q2_K Q3_K
// Q4_K Q5_K Q6_K IQ4_XS TQ1_0 TQ2_0. The same interface as in small_blocks.h. Codes are the file's
// bytes, interleaved; 6-bit scales become bytes (three percent more memory, no bit picking in the
// loop), and one multiplication per sub-block and vector makes them f32.
#pragma once

#include "kernels/generic/small_blocks.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// The 16-bit items follow the n_bytes byte items of a K-block's scales.
SLUICE_INLINE uint8_t* halves_after(uint8_t* s, int n_bytes) {
  return s + kRowGroup * n_bytes;
}
SLUICE_INLINE const uint8_t* halves_after(const uint8_t* s, int n_bytes) {
  return s + kRowGroup * n_bytes;
}

template <int NV>
SLUICE_INLINE void load_super_halves(const uint8_t* s, int index, int row0, F32 (&out)[NV]) {
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    out[v] = load_super_scale(s + kHalfStep * index + 2 * (row0 + kLanes * v));
  }
}

// out[v] = byte item `index`, unsigned or signed, times factor[v].
template <int kShift, int kMask, int NV>
SLUICE_INLINE void scale_bits(const uint8_t* s, int index, int row0, const F32 (&factor)[NV],
                              F32 (&out)[NV]) {
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    out[v] = load_bits<kShift, kMask>(s + kRowGroup * index + row0 + kLanes * v) * factor[v];
  }
}
template <int NV>
SLUICE_INLINE void scale_signed(const uint8_t* s, int index, int row0, const F32 (&factor)[NV],
                                F32 (&out)[NV]) {
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    out[v] = load_s8(s + kRowGroup * index + row0 + kLanes * v) * factor[v];
  }
}
template <int NV>
SLUICE_INLINE void negate(F32 (&x)[NV]) {
  SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
    x[v] = splat(0.0f) - x[v];
  }
}

// kMask of every byte of dword `dword` (of a K-block) after a shift.
template <int kShift, int kMask>
SLUICE_INLINE Bytes plane(const uint8_t* q, int dword, int v) {
  return bits<kShift, kMask>(load_bytes(q + kBytesStep * dword + 4 * kLanes * v));
}

// The 6-bit scales and minimums of Q4_K and Q5_K, and back.
SLUICE_INLINE void put_scales_and_mins(const uint8_t* scales, uint8_t* s, int row) {
  for (int j = 0; j < 4; ++j) {
    const int low = scales[j], high = scales[j + 4], both = scales[j + 8];
    put_byte(s, j, row, low & 63);
    put_byte(s, 8 + j, row, high & 63);
    put_byte(s, 4 + j, row, (both & 15) | (low >> 6) << 4);
    put_byte(s, 12 + j, row, (both >> 4) | (high >> 6) << 4);
  }
}
SLUICE_INLINE void get_scales_and_mins(const uint8_t* s, int row, uint8_t* scales) {
  for (int j = 0; j < 4; ++j) {
    const int s_high = get_byte(s, 4 + j, row), m_high = get_byte(s, 12 + j, row);
    scales[j] = static_cast<uint8_t>(get_byte(s, j, row) | (s_high >> 4) << 6);
    scales[j + 4] = static_cast<uint8_t>(get_byte(s, 8 + j, row) | (m_high >> 4) << 6);
    scales[j + 8] = static_cast<uint8_t>((s_high & 15) | (m_high & 15) << 4);
  }
}

// Sub-blocks of 32 from `block` on, each with a scale and a minimum in bytes b and 8 + b.
// codes(Int<part>, v, 0, quad) as in dot_parts.
template <int kParts, int kMax, int NV, int T, class F>
SLUICE_INLINE void mul_scale_min(const uint8_t* s, int row0, const Tokens& x, int block,
                                 const F& codes, const F32 (&d)[NV], const F32 (&neg_dmin)[NV],
                                 F32 (&acc)[NV][T]) {
  const auto add = [&](int b, const I32(&isum)[NV][T]) SLUICE_INLINE_LAMBDA {
    F32 dw[NV], m[NV];
    scale_bits<0, 255>(s, b, row0, d, dw);
    accumulate(x, b, isum, dw, acc);
    scale_bits<0, 255>(s, 8 + b, row0, neg_dmin, m);
    accumulate_min(x, b, m, acc);
  };
  if constexpr (T == 1 && kParts <= kMaxTogether) {
    I32 isum[kParts][NV][1];
    dot_parts<kParts, NV, kMax, 0, 8, -1>(x, block, codes, isum);
    SLUICE_UNROLL for (int p = 0; p < kParts; ++p) add(block + p, isum[p]);
  } else {
    unroll<kParts>([&](auto part) SLUICE_INLINE_LAMBDA {
      I32 isum[NV][T];
      dot_codes<NV, T, kMax, 0, 8, -1, false>(
          x, block + part,
          [&](int v, int i, int j) SLUICE_INLINE_LAMBDA { return codes(part, v, i, j); }, isum);
      add(block + part, isum);
    });
  }
}

// Sub-blocks of 16, two to an activation block, from `block` on, with signed scales in bytes 2b and
// 2b + 1.
template <int kParts, int kMax, int kOffsetShift, int NV, int T, class F>
SLUICE_INLINE void mul_signed_halves(const uint8_t* s, int row0, const Tokens& x, int block,
                                     const F& codes, const F32 (&d)[NV], F32 (&acc)[NV][T]) {
  const auto add = [&](int b, const I32(&isum0)[NV][T], const I32(&isum1)[NV][T])
                       SLUICE_INLINE_LAMBDA {
                         F32 dw0[NV], dw1[NV];
                         scale_signed(s, 2 * b, row0, d, dw0);
                         scale_signed(s, 2 * b + 1, row0, d, dw1);
                         accumulate_halves(x, b, isum0, isum1, dw0, dw1, acc);
                       };
  if constexpr (T == 1 && kParts <= kMaxTogether) {
    I32 isum0[kParts][NV][1], isum1[kParts][NV][1];
    dot_parts<kParts, NV, kMax, 0, 4, kOffsetShift>(x, block, codes, isum0);
    dot_parts<kParts, NV, kMax, 4, 4, kOffsetShift>(x, block, codes, isum1);
    SLUICE_UNROLL for (int p = 0; p < kParts; ++p) add(block + p, isum0[p], isum1[p]);
  } else {
    unroll<kParts>([&](auto part) SLUICE_INLINE_LAMBDA {
      const auto part_codes = [&](int v, int i, int j)
                                  SLUICE_INLINE_LAMBDA { return codes(part, v, i, j); };
      I32 isum0[NV][T], isum1[NV][T];
      dot_codes<NV, T, kMax, 0, 4, kOffsetShift, false>(x, block + part, part_codes, isum0);
      dot_codes<NV, T, kMax, 4, 4, kOffsetShift, false>(x, block + part, part_codes, isum1);
      add(block + part, isum0, isum1);
    });
  }
}

struct Q4_K {
  using Block = BlockQ4_K;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQ4_K;
  static constexpr int kBlock = 256, kCodeBytes = 128, kScaleBytes = 20;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    const uint8_t* codes[kRowGroup];
    interleave_field<Block, offsetof(Block, qs)>(rows, codes);
    interleave(codes, 32, q);
    for (int r = 0; r < kRowGroup; ++r) {
      put_scales_and_mins(rows[r]->scales, s, r);
      put_half(halves_after(s, 16), 0, r, rows[r]->d);
      put_half(halves_after(s, 16), 1, r, rows[r]->dmin);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    deinterleave(q, row, 32, &out.qs);
    get_scales_and_mins(s, row, out.scales);
    out.d = get_half(halves_after(s, 16), 0, row);
    out.dmin = get_half(halves_after(s, 16), 1, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV], neg_dmin[NV];
    load_super_halves(halves_after(s, 16), 0, row0, d);
    load_super_halves(halves_after(s, 16), 1, row0, neg_dmin);
    negate(neg_dmin);
    for (int c = 0; c < 4; ++c) {
      const uint8_t* qs = q + kBytesStep * 8 * c;
      mul_scale_min<2, 15>(
          s, row0, x, 2 * c,
          [&](auto part, int v, int i, int j) SLUICE_INLINE_LAMBDA {
            return plane<4 * decltype(part)::value, 15>(qs + kBytesStep * i, j, v);
          },
          d, neg_dmin, acc);
    }
  }
};

// Codes: 8 dwords of fifth bits, each before one of the first 8 of nibbles, then the other nibbles.
struct Q5_K {
  using Block = BlockQ5_K;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQ5_K;
  static constexpr int kBlock = 256, kCodeBytes = 160, kScaleBytes = 20;

  static constexpr int dword_of(int i) { return plane_first(8, i); }

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    const uint8_t* codes[kRowGroup];
    interleave_field<Block, offsetof(Block, qh)>(rows, codes);
    interleave_as(codes, 40, dword_of, q);
    for (int r = 0; r < kRowGroup; ++r) {
      put_scales_and_mins(rows[r]->scales, s, r);
      put_half(halves_after(s, 16), 0, r, rows[r]->d);
      put_half(halves_after(s, 16), 1, r, rows[r]->dmin);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    deinterleave_as(q, row, 40, dword_of, &out.qh);
    get_scales_and_mins(s, row, out.scales);
    out.d = get_half(halves_after(s, 16), 0, row);
    out.dmin = get_half(halves_after(s, 16), 1, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV], neg_dmin[NV];
    load_super_halves(halves_after(s, 16), 0, row0, d);
    load_super_halves(halves_after(s, 16), 1, row0, neg_dmin);
    negate(neg_dmin);
    unroll<4>([&](auto chunk) SLUICE_INLINE_LAMBDA {
      constexpr int c = decltype(chunk)::value;
      mul_scale_min<2, 31>(
          s, row0, x, 2 * c,
          [&](auto part, int v, int i, int j) SLUICE_INLINE_LAMBDA {
            constexpr int p = decltype(part)::value;
            return plane<4 * p, 15>(q + kBytesStep * (c == 0 ? 2 * i : i),
                                    c == 0 ? 2 * j + 1 : 8 + 8 * c + j, v) |
                   plane<2 * c + p - 4, 16>(q + kBytesStep * 2 * i, 2 * j, v);
          },
          d, neg_dmin, acc);
    });
  }
};

// Codes: for each half of the block and quad, two dwords of low nibbles and one of upper bits.
struct Q6_K {
  using Block = BlockQ6_K;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQ6_K;
  static constexpr int kBlock = 256, kCodeBytes = 192, kScaleBytes = 18;

  // Which of the file's dwords (32 of low nibbles, 16 of upper bits) is the i-th here.
  static constexpr int dword_of(int i) {
    const int half = i / 24, quad = i % 24 / 3, which = i % 3;
    return which == 2 ? 32 + 8 * half + quad : 16 * half + 8 * which + quad;
  }
  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    const uint8_t* codes[kRowGroup];
    interleave_field<Block, offsetof(Block, ql)>(rows, codes);
    interleave_as(codes, 48, dword_of, q);
    for (int r = 0; r < kRowGroup; ++r) {
      for (int j = 0; j < 16; ++j) put_byte(s, j, r, rows[r]->scales[j]);
      put_half(halves_after(s, 16), 0, r, rows[r]->d);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    deinterleave_as(q, row, 48, dword_of, &out.ql);
    for (int j = 0; j < 16; ++j) out.scales[j] = static_cast<int8_t>(get_byte(s, j, row));
    out.d = get_half(halves_after(s, 16), 0, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV];
    load_super_halves(halves_after(s, 16), 0, row0, d);
    for (int h = 0; h < 2; ++h) {
      const uint8_t* three = q + kBytesStep * 24 * h;
      mul_signed_halves<4, 63, 5>(
          s, row0, x, 4 * h,
          [&](auto part, int v, int i, int j) SLUICE_INLINE_LAMBDA {
            constexpr int p = decltype(part)::value;
            return plane<4 * (p / 2), 15>(three + kBytesStep * 3 * i, 3 * j + p % 2, v) |
                   plane<2 * p - 4, 48>(three + kBytesStep * 3 * i, 3 * j + 2, v);
          },
          d, acc);
    }
  }
};

// The sixteen 6-bit scales of Q3_K less 32, and back.
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

// Codes: 8 dwords of third bits, each before one of the first 8 of two-bit planes, then the others.
struct Q3_K {
  using Block = BlockQ3_K;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQ3_K;
  static constexpr int kBlock = 256, kCodeBytes = 96, kScaleBytes = 18;

  static constexpr int dword_of(int i) { return plane_first(8, i); }

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    const uint8_t* codes[kRowGroup];
    interleave_field<Block, offsetof(Block, hmask)>(rows, codes);
    interleave_as(codes, 24, dword_of, q);
    for (int r = 0; r < kRowGroup; ++r) {
      put_q3_scales(rows[r]->scales, s, r);
      put_half(halves_after(s, 16), 0, r, rows[r]->d);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    deinterleave_as(q, row, 24, dword_of, &out.hmask);
    get_q3_scales(s, row, out.scales);
    out.d = get_half(halves_after(s, 16), 0, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV];
    load_super_halves(halves_after(s, 16), 0, row0, d);
    unroll<2>([&](auto half) SLUICE_INLINE_LAMBDA {
      constexpr int h = decltype(half)::value;
      mul_signed_halves<4, 7, 2>(
          s, row0, x, 4 * h,
          [&](auto part, int v, int i, int j) SLUICE_INLINE_LAMBDA {
            constexpr int p = decltype(part)::value;
            return plane<2 * p, 3>(q + kBytesStep * (h == 0 ? 2 * i : i),
                                   h == 0 ? 2 * j + 1 : 16 + j, v) |
                   plane<4 * h + p - 2, 4>(q + kBytesStep * 2 * i, 2 * j, v);
          },
          d, acc);
    });
  }
};

struct Q2_K {
  using Block = BlockQ2_K;
  using Unpacked = Block;
  static constexpr Type kType = Type::kQ2_K;
  static constexpr int kBlock = 256, kCodeBytes = 64, kScaleBytes = 20;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    const uint8_t* codes[kRowGroup];
    interleave_field<Block, offsetof(Block, qs)>(rows, codes);
    interleave(codes, 16, q);
    for (int r = 0; r < kRowGroup; ++r) {
      for (int j = 0; j < 16; ++j) put_byte(s, j, r, rows[r]->scales[j]);
      put_half(halves_after(s, 16), 0, r, rows[r]->d);
      put_half(halves_after(s, 16), 1, r, rows[r]->dmin);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    deinterleave(q, row, 16, &out.qs);
    for (int j = 0; j < 16; ++j) out.scales[j] = static_cast<uint8_t>(get_byte(s, j, row));
    out.d = get_half(halves_after(s, 16), 0, row);
    out.dmin = get_half(halves_after(s, 16), 1, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV], neg_dmin[NV];
    load_super_halves(halves_after(s, 16), 0, row0, d);
    load_super_halves(halves_after(s, 16), 1, row0, neg_dmin);
    negate(neg_dmin);
    for (int h = 0; h < 2; ++h) {
      const uint8_t* qs = q + kBytesStep * 8 * h;
      unroll<4>([&](auto part) SLUICE_INLINE_LAMBDA {
        constexpr int p = decltype(part)::value;
        mul_block(
            s, row0, x, 4 * h + p,
            [&](int v, int i, int j)
                SLUICE_INLINE_LAMBDA { return plane<2 * p, 3>(qs + kBytesStep * i, j, v); },
            d, neg_dmin, acc);
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
    accumulate_halves(x, b, isum0, isum1, dw0, dw1, acc);
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
  static constexpr int kBlock = 256, kCodeBytes = 128, kScaleBytes = 10;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    const uint8_t* codes[kRowGroup];
    interleave_field<Block, offsetof(Block, qs)>(rows, codes);
    interleave(codes, 32, q);
    for (int r = 0; r < kRowGroup; ++r) {
      for (int j = 0; j < 8; ++j) {
        const int low = (rows[r]->scales_l[j / 2] >> (4 * (j % 2))) & 15;
        put_byte(s, j, r, (low | ((rows[r]->scales_h >> (2 * j)) & 3) << 4) - 32);
      }
      put_half(halves_after(s, 8), 0, r, rows[r]->d);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    deinterleave(q, row, 32, &out.qs);
    unsigned high = 0, low = 0;
    for (int j = 0; j < 8; ++j) {
      const unsigned value = static_cast<unsigned>(static_cast<int8_t>(get_byte(s, j, row)) + 32);
      low |= (value & 15) << (4 * j);
      high |= (value >> 4) << (2 * j);
    }
    out.scales_h = static_cast<uint16_t>(high);
    memcpy(out.scales_l, &low, 4);
    out.d = get_half(halves_after(s, 8), 0, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV];
    load_super_halves(halves_after(s, 8), 0, row0, d);
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
  static constexpr int kBlock = 256, kCodeBytes = 64, kScaleBytes = 2;

  static void pack(const Block* const* rows, uint8_t* q, uint8_t* s) {
    const uint8_t* codes[kRowGroup];
    interleave_field<Block, offsetof(Block, qs)>(rows, codes);
    interleave(codes, 16, q);
    for (int r = 0; r < kRowGroup; ++r) {
      put_half(s, 0, r, rows[r]->d);
    }
  }
  static void unpack(const uint8_t* q, const uint8_t* s, int row, Block& out) {
    deinterleave(q, row, 16, &out.qs);
    out.d = get_half(s, 0, row);
  }
  template <int NV, int T>
  SLUICE_INLINE_METHOD static void mul(const uint8_t* q, const uint8_t* s, int row0,
                                       const Tokens& x, F32 (&acc)[NV][T]) {
    F32 d[NV];
    load_super_halves(s, 0, row0, d);
    for (int h = 0; h < 2; ++h) {
      const uint8_t* qs = q + kBytesStep * 8 * h;
      unroll<4>([&](auto part) SLUICE_INLINE_LAMBDA {
        constexpr int p = decltype(part)::value;
        I32 isum[NV][T];
        dot_codes<NV, T, 3, 0, 8, 0, false>(
            x, 4 * h + p,
            [&](int v, int i, int j)
                SLUICE_INLINE_LAMBDA { return plane<2 * p, 3>(qs + kBytesStep * i, j, v); },
            isum);
        accumulate(x, 4 * h + p, isum, d, acc);
      });
    }
  }
};

// Base-3 digits are packed as the two-bit planes of TQ2_0 and run as such: a fifth more memory,
// and no multiplication per weight.
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
