// One token times rows in file layout, without packing: the path of streamed weights in decode
// steps, where packing took as long as the multiplication. A Run is 16 bytes of each of kLanes
// rows. Targets with four lanes multiply it row by row and gather the integer sums of four rows in
// one vector (isa/four_lanes.h); wider ones transpose it in registers (isa/wide_lanes.h). From
// there on the operations and their order are those of packed weights, so results are
// bit-identical. Only for the types that most files consist of; everything else is packed.
#pragma once

#include "kernels/generic/matmul.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// Touches the next kLanes rows from front to back meanwhile. Rows are as many short streams, which
// no prefetcher follows; touched this way they form one stream through the whole matrix.
struct Ahead {
  const uint8_t* at;
  template <class Block, int kSteps>
  SLUICE_INLINE_METHOD void step() {
    static_assert(kLanes * sizeof(Block) % kSteps == 0);
    constexpr size_t kBytes = kLanes * sizeof(Block) / kSteps;
    // Skipping a line now and then is harmless.
    SLUICE_UNROLL for (size_t i = 0; i < (kBytes + 55) / 64; ++i) touch(at + 64 * i);
    at += kBytes;
  }
};

struct DirectQ4_0 {
  using Block = BlockQ4_0;
  static constexpr int kBlock = 32;

  SLUICE_INLINE_METHOD static void mul(FileRows w, const ActBlock* x, Ahead& next, F32& acc) {
    next.step<Block, 1>();
    const Run qs = load_run(w, offsetof(Block, qs));
    const I32 sums = dot_runs<15, 2>(*x, 0, [&](int i, int run) SLUICE_INLINE_LAMBDA {
      const Bytes raw = qs[i];
      return run == 0 ? bits<0, 15>(raw) : bits<4, 15>(raw);
    });
    const I32 isum = sums + shl<3>(splat_i32(x->m.nsum));
    const RowHalves d = load_row_halves(w, offsetof(Block, d));
    acc = mul_add(to_f32(isum), load_scale(&d) * splat(x->m.d), acc);
  }
};

// 32 codes that index a table, from `offset` of a block on.
SLUICE_INLINE I32 dot_table_codes(const FileRows& w, size_t offset, const ActBlock& x) {
  const Run qs = load_run(w, offset);
  return dot_signed_runs(x, [&](int i, int run) SLUICE_INLINE_LAMBDA {
    const Bytes raw = qs[i];
    return lookup16(kIq4Values, run == 0 ? bits<0, 15>(raw) : bits<4, 15>(raw));
  });
}

struct DirectIQ4_NL {
  using Block = BlockIQ4_NL;
  static constexpr int kBlock = 32;

  SLUICE_INLINE_METHOD static void mul(FileRows w, const ActBlock* x, Ahead& next, F32& acc) {
    next.step<Block, 1>();
    const I32 sums = dot_table_codes(w, offsetof(Block, qs), *x);
    const RowHalves d = load_row_halves(w, offsetof(Block, d));
    acc = mul_add(to_f32(sums), load_scale(&d) * splat(x->m.d), acc);
  }
};

struct DirectIQ4_XS {
  using Block = BlockIQ4_XS;
  static constexpr int kBlock = 256;

  SLUICE_INLINE_METHOD static void mul(FileRows w, const ActBlock* x, Ahead& next, F32& acc) {
    Bytes head[4];  // d and scales_h, then scales_l
    static_assert(offsetof(Block, scales_h) == 2 && offsetof(Block, scales_l) == 4);
    load_row_columns(w, 0, head);
    const RowHalves halves = load_row_halves(w, offsetof(Block, d));
    const F32 d = load_f16(&halves);
    UnsignedLanes high = __builtin_bit_cast(UnsignedLanes, head[0]) >> 16;
    UnsignedLanes low = __builtin_bit_cast(UnsignedLanes, head[1]);
    SLUICE_NO_UNROLL for (int b = 0; b < 8; ++b) {
      next.step<Block, 8>();
      const I32 sums = dot_table_codes(w, offsetof(Block, qs) + 16 * static_cast<size_t>(b), x[b]);
      const Lanes scale = __builtin_bit_cast(Lanes, (low & 15) | (high & 3) << 4) - 32;
      const F32 dw = to_f32(lanes_of(scale)) * d;
      acc = mul_add(to_f32(sums), dw * splat(x[b].m.d), acc);
      low >>= 4;
      high >>= 2;
    }
  }
};

struct DirectQ8_0 {
  using Block = BlockQ8_0;
  static constexpr int kBlock = 32;

  SLUICE_INLINE_METHOD static void mul(FileRows w, const ActBlock* x, Ahead& next, F32& acc) {
    const Run qs[2] = {load_run(w, offsetof(Block, qs)), load_run(w, offsetof(Block, qs) + 16)};
    const I32 sums = dot_signed_runs(*x, [&](int i, int run) SLUICE_INLINE_LAMBDA {
      if (run == 0 && i % 2 == 0) next.step<Block, 2>();
      return qs[run][i];
    });
    const RowHalves d = load_row_halves(w, offsetof(Block, d));
    acc = mul_add(to_f32(sums), load_scale(&d) * splat(x->m.d), acc);
  }
};

// Q4_K, and Q5_K, which has a fifth bit for every code.
template <class B>
struct DirectScaledK {
  using Block = B;
  static constexpr int kBlock = 256;
  static constexpr bool kFifthBits = sizeof(Block) == sizeof(BlockQ5_K);
  static constexpr int kMax = kFifthBits ? 31 : 15;

  SLUICE_INLINE_METHOD static void mul(FileRows w, const ActBlock* x, Ahead& next, F32& acc) {
    Bytes head[4];  // d and dmin, then the twelve bytes of scales and minimums
    static_assert(offsetof(Block, scales) == 4 && sizeof(Block::scales) == 12);
    load_row_columns(w, 0, head);
    const Bytes a = head[1], b = head[2], c = head[3];
    I32 scales[8];
    each_byte(lanes_of(bits<0, 63>(a)), scales);
    each_byte(lanes_of(bits<0, 15>(c) | bits<2, 48>(a)), scales + 4);
    const I32 isum =
        mins(lanes_of(bits<0, 63>(b)), x) + mins(lanes_of(bits<4, 15>(c) | bits<2, 48>(b)), x + 2);
    const F32 scale = splat(__builtin_bit_cast(float, x[kActSuper / 2].m.super));
    const RowHalves d = load_row_halves(w, offsetof(Block, d));
    const RowHalves dmin = load_row_halves(w, offsetof(Block, dmin));
    acc = neg_mul_add(to_f32(isum), load_f16(&dmin) * scale, acc);
    F32 part = splat(0.0f);
    [[maybe_unused]] Bytes fifths[2][4];  // the current step's bits are lowest
    if constexpr (kFifthBits) {
      SLUICE_UNROLL for (int run = 0; run < 2; ++run) {
        const Run qh = load_run(w, offsetof(Block, qh) + 16 * static_cast<size_t>(run));
        SLUICE_UNROLL for (int i = 0; i < 4; ++i) fifths[run][i] = qh[i];
      }
    }
    FileRows qs = w;
    qs.advance(offsetof(Block, qs));
    SLUICE_NO_UNROLL for (int j = 0; j < 8; j += 2) {
      const Run codes[2] = {load_run(qs, 0), load_run(qs, 16)};
      unroll<2>([&](auto p) SLUICE_INLINE_LAMBDA {
        next.step<Block, 8>();
        const ActBlock& block = x[j + p];
        const I32 sums = dot_runs<kMax, 2>(block, 0, [&](int i, int run) SLUICE_INLINE_LAMBDA {
          constexpr int kPart = decltype(p)::value;
          const Bytes low = bits<4 * kPart, 15>(codes[run][i]);
          if constexpr (kFifthBits) {
            return low | bits<kPart - 4, 16>(fifths[run][i]);
          } else {
            return low;
          }
        });
        part = mul_add(scaled(sums, scales[j + p]), splat(block.m.d), part);
      });
      qs.advance(32);
      if constexpr (kFifthBits) {
        SLUICE_UNROLL for (int i = 0; i < 8; ++i) {
          fifths[i / 4][i % 4] = bits<2, 63>(fifths[i / 4][i % 4]);
        }
      }
    }
    acc = mul_add(part, load_f16(&d), acc);
  }

 private:
  SLUICE_INLINE_METHOD static void each_byte(I32 bytes, I32* out) {
    unroll<4>([&](auto i) SLUICE_INLINE_LAMBDA { out[i] = byte_of<decltype(i)::value>(bytes); });
  }
  // Four minimums times the sums of four activation blocks, which are stored in pairs.
  SLUICE_INLINE_METHOD static I32 mins(I32 m, const ActBlock* pair) {
    return pair_dot(byte_pair_of<0>(m), splat_pair(pair[0].m.super)) +
           pair_dot(byte_pair_of<2>(m), splat_pair(pair[1].m.super));
  }
};

struct DirectQ6_K {
  using Block = BlockQ6_K;
  static constexpr int kBlock = 256;

  SLUICE_INLINE_METHOD static void mul(FileRows w, const ActBlock* x, Ahead& next, F32& acc) {
    Bytes bytes[4];
    load_row_columns(w, offsetof(Block, scales), bytes);
    I32 scales[16];
    SLUICE_UNROLL for (int i = 0; i < 4; ++i) {
      unroll<4>([&](auto j) SLUICE_INLINE_LAMBDA {
        scales[4 * i + j] = signed_byte_of<decltype(j)::value>(lanes_of(bytes[i]));
      });
    }
    F32 part = splat(0.0f);
    SLUICE_NO_UNROLL for (int h = 0; h < 2; ++h) {
      I32 sums[2][4];
      SLUICE_NO_UNROLL for (int half = 0; half < 2; ++half) {
        const size_t column = 16 * static_cast<size_t>(half), ql = 64 * static_cast<size_t>(h);
        const size_t first = offsetof(Block, ql) + ql + column;
        const Run low[2] = {load_run(w, first), load_run(w, first + 32)};
        const Run high = load_run(w, offsetof(Block, qh) + ql / 2 + column);
        unroll<4>([&](auto part_of_half) SLUICE_INLINE_LAMBDA {
          constexpr int p = decltype(part_of_half)::value;
          if (p != 3) next.step<Block, 12>();
          const ActBlock& block = x[4 * h + p];
          sums[half][p] = dot_runs<63, 1>(block, half,
                                          [&](int i, int) SLUICE_INLINE_LAMBDA {
                                            return bits<p / 2 * 4, 15>(low[p % 2][i]) |
                                                   bits<2 * p - 4, 48>(high[i]);
                                          }) +
                          splat_i32(half_sum(block.m.nsum16[half]) * 32);
        });
      }
      SLUICE_UNROLL for (int p = 0; p < 4; ++p) {
        const int b = 4 * h + p;
        const F32 both = scaled_two(sums[0][p], scales[2 * b], sums[1][p], scales[2 * b + 1]);
        part = mul_add(both, splat(x[b].m.d), part);
      }
    }
    const RowHalves d = load_row_halves(w, offsetof(Block, d));
    acc = mul_add(part, load_f16(&d), acc);
  }
};

// A group of rows in file layout times one token.
template <class K>
void multiply_direct(const MatmulArgs& a, const uint8_t* rows, int64_t row) {
  const size_t stride = reference::row_bytes(a.w.type, a.w.cols);
  for (int r = 0; r < kRowGroup; r += kLanes) {
    F32 acc = splat(0.0f);
    const uint8_t* first = rows + static_cast<size_t>(r) * stride;
    FileRows w{first, stride};
    const ActBlock* x = static_cast<const ActBlock*>(a.x.q8);
    const bool last = row + r + 2 * kLanes > a.r1;
    Ahead next = {last ? first : first + kLanes * stride};
    for (int64_t left = a.w.cols; left > 0; left -= K::kBlock) {
      K::mul(w, x, next, acc);
      w.advance(sizeof(typename K::Block));
      x += K::kBlock / kActValues;
    }
    put_result(a, row + r, 0, kLanes, acc);
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
