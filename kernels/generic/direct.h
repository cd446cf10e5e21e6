// One token times rows in file layout, without packing them: what streamed weights meet when text
// is generated, where packing took as long as the product. Here 16 columns of one row fill a
// vector, where packed ones hold four columns of four rows. The integer sums of four rows are
// brought into one vector, and from there on every operation is the one that packed weights see, in
// the same order, so the result is the same to the bit. For targets of four lanes, and the types
// that most files consist of; everything else is packed.
#pragma once

#include "kernels/generic/matmul.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// Four rows' blocks, `stride` bytes apart.
struct FileRows {
  const uint8_t* base;
  size_t stride;
  SLUICE_INLINE_METHOD Bytes bytes(int r, size_t offset) const {
    return load_bytes(base + static_cast<size_t>(r) * stride + offset);
  }
  SLUICE_INLINE_METHOD uint64_t halves(size_t offset) const {
    f16 h[4];
    SLUICE_UNROLL for (int r = 0; r < 4; ++r) {
      memcpy(&h[r], base + static_cast<size_t>(r) * stride + offset, sizeof h[r]);
    }
    return join_halves(h);
  }
  SLUICE_INLINE_METHOD void columns(size_t offset, Dwords (&out)[4]) const {
    const uint8_t* first = base + offset;
    const uint8_t* const rows[4] = {first, first + stride, first + 2 * stride, first + 3 * stride};
    load_columns(rows, out);
  }
};

// The four rows after these, touched from front to back meanwhile: four rows are four streams that
// end soon, which no prefetcher follows, but so they are one stream through the whole matrix.
struct Ahead {
  const uint8_t* at;
  template <class Block, int kSteps>
  SLUICE_INLINE_METHOD void step() {
    static_assert(kLanes * sizeof(Block) % kSteps == 0);
    touch(at);
    at += kLanes * sizeof(Block) / kSteps;
  }
};

// Lane r: the sum over kRuns runs of 16 columns, whose codes in row r are codes(r, run).
template <int kMax, int kRuns, class F>
SLUICE_INLINE I32 dot_rows(const Quad (&x)[kRuns], const F& codes) {
  using S = Sum<kMax, 4 * kRuns>;
  I32 sums[kLanes];
  SLUICE_UNROLL for (int r = 0; r < kLanes; ++r) {
    S sum = start<S>(splat_i32(0));
    SLUICE_UNROLL for (int i = 0; i < kRuns; ++i) sum = dot(sum, prepare(codes(r, i)), x[i]);
    settle(sum);
    sums[r] = finish(sum);
  }
  return reduce_add_each(sums);
}

struct DirectQ4_0 {
  using Block = BlockQ4_0;
  static constexpr int kBlock = 32;

  SLUICE_INLINE_METHOD static void mul(FileRows w, const ActBlock* x, Ahead& next, F32& acc) {
    next.step<Block, 1>();
    const Quad q[2] = {load_row(*x, 0), load_row(*x, 1)};
    const I32 sums = dot_rows<15>(q, [&](int r, int run) SLUICE_INLINE_LAMBDA {
      const Bytes raw = w.bytes(r, offsetof(Block, qs));
      return run == 0 ? bits<0, 15>(raw) : bits<4, 15>(raw);
    });
    const I32 isum = sums + shl<3>(splat_i32(x->m.nsum));
    const uint64_t d = w.halves(offsetof(Block, d));
    acc = mul_add(to_f32(isum), load_scale(&d) * splat(x->m.d), acc);
  }
};

struct DirectQ8_0 {
  using Block = BlockQ8_0;
  static constexpr int kBlock = 32;

  SLUICE_INLINE_METHOD static void mul(FileRows w, const ActBlock* x, Ahead& next, F32& acc) {
    const SignedQuad q[2] = {load_signed_row(*x, 0), load_signed_row(*x, 1)};
    I32 sums[kLanes];
    SLUICE_UNROLL for (int r = 0; r < kLanes; ++r) {
      sums[r] = splat_i32(0);
      if (r % 2 == 0) next.step<Block, 2>();
      SLUICE_UNROLL for (int i = 0; i < 2; ++i) {
        const Bytes codes = w.bytes(r, offsetof(Block, qs) + 16 * static_cast<size_t>(i));
        sums[r] = dot_signed(sums[r], prepare_signed(codes), q[i]);
      }
    }
    const uint64_t d = w.halves(offsetof(Block, d));
    acc = mul_add(to_f32(reduce_add_each(sums)), load_scale(&d) * splat(x->m.d), acc);
  }
};

struct DirectQ4_K {
  using Block = BlockQ4_K;
  static constexpr int kBlock = 256;

  SLUICE_INLINE_METHOD static void mul(FileRows w, const ActBlock* x, Ahead& next, F32& acc) {
    Dwords head[4];  // d and dmin, then the twelve bytes of scales and minimums
    static_assert(offsetof(Block, qs) == sizeof head / 4);
    w.columns(0, head);
    const Bytes a = __builtin_bit_cast(Bytes, head[1]), b = __builtin_bit_cast(Bytes, head[2]);
    const Bytes c = __builtin_bit_cast(Bytes, head[3]);
    I32 scales[8];
    each_byte(lanes_of(bits<0, 63>(a)), scales);
    each_byte(lanes_of(bits<0, 15>(c) | bits<2, 48>(a)), scales + 4);
    const I32 isum =
        mins(lanes_of(bits<0, 63>(b)), x) + mins(lanes_of(bits<4, 15>(c) | bits<2, 48>(b)), x + 2);
    const F32 scale = splat(__builtin_bit_cast(float, x[kActSuper / 2].m.super));
    const uint64_t d = w.halves(offsetof(Block, d));
    const uint64_t dmin = w.halves(offsetof(Block, dmin));
    acc = neg_mul_add(to_f32(isum), load_f16(&dmin) * scale, acc);
    F32 part = splat(0.0f);
    FileRows qs = {w.base + offsetof(Block, qs), w.stride};
    SLUICE_NO_UNROLL for (int j = 0; j < 8; j += 2) {
      unroll<2>([&](auto p) SLUICE_INLINE_LAMBDA {
        next.step<Block, 8>();
        const ActBlock& block = x[j + p];
        const Quad q[2] = {load_row(block, 0), load_row(block, 1)};
        const I32 sums = dot_rows<15>(q, [&](int r, int run) SLUICE_INLINE_LAMBDA {
          return bits<4 * decltype(p)::value, 15>(qs.bytes(r, 16 * static_cast<size_t>(run)));
        });
        part = mul_add(scaled(sums, scales[j + p]), splat(block.m.d), part);
      });
      qs.base += 32;
    }
    acc = mul_add(part, load_f16(&d), acc);
  }

 private:
  SLUICE_INLINE_METHOD static void each_byte(I32 bytes, I32* out) {
    unroll<4>([&](auto i) SLUICE_INLINE_LAMBDA { out[i] = byte_of<decltype(i)::value>(bytes); });
  }
  // Four minimums times the sums of four activation blocks, which come in pairs.
  SLUICE_INLINE_METHOD static I32 mins(I32 m, const ActBlock* pair) {
    return pair_dot(byte_pair_of<0>(m), splat_pair(pair[0].m.super)) +
           pair_dot(byte_pair_of<2>(m), splat_pair(pair[1].m.super));
  }
};

struct DirectQ6_K {
  using Block = BlockQ6_K;
  static constexpr int kBlock = 256;

  SLUICE_INLINE_METHOD static void mul(FileRows w, const ActBlock* x, Ahead& next, F32& acc) {
    Dwords bytes[4];
    w.columns(offsetof(Block, scales), bytes);
    I32 scales[16];
    SLUICE_UNROLL for (int i = 0; i < 4; ++i) {
      unroll<4>([&](auto j) SLUICE_INLINE_LAMBDA {
        scales[4 * i + j] = signed_byte_of<decltype(j)::value>(__builtin_bit_cast(I32, bytes[i]));
      });
    }
    F32 part = splat(0.0f);
    SLUICE_NO_UNROLL for (int h = 0; h < 2; ++h) {
      I32 sums[2][4];
      SLUICE_NO_UNROLL for (int half = 0; half < 2; ++half) {
        const size_t column = 16 * static_cast<size_t>(half), ql = 64 * static_cast<size_t>(h);
        const FileRows low = {w.base + offsetof(Block, ql) + ql + column, w.stride};
        const FileRows high = {w.base + offsetof(Block, qh) + ql / 2 + column, w.stride};
        unroll<4>([&](auto part_of_half) SLUICE_INLINE_LAMBDA {
          constexpr int p = decltype(part_of_half)::value;
          if (p != 3) next.step<Block, 12>();
          const ActBlock& block = x[4 * h + p];
          const Quad q[1] = {load_row(block, half)};
          sums[half][p] = dot_rows<63>(q,
                                       [&](int r, int) SLUICE_INLINE_LAMBDA {
                                         return bits<p / 2 * 4, 15>(low.bytes(r, p % 2 * 32)) |
                                                bits<2 * p - 4, 48>(high.bytes(r, 0));
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
    const uint64_t d = w.halves(offsetof(Block, d));
    acc = mul_add(part, load_f16(&d), acc);
  }
};

// A group of rows in file layout times one token.
template <class K>
void multiply_direct(const MatmulArgs& a, const uint8_t* rows, int64_t row) {
  const size_t stride = reference::row_bytes(a.w.type, a.w.cols);
  for (int r = 0; r < kRowGroup; r += kLanes) {
    F32 acc = splat(0.0f);
    FileRows w = {rows + static_cast<size_t>(r) * stride, stride};
    const ActBlock* x = static_cast<const ActBlock*>(a.x.q8);
    const bool last = row + r + 2 * kLanes > a.r1;
    Ahead next = {last ? w.base : w.base + kLanes * stride};
    for (int64_t left = a.w.cols; left > 0; left -= K::kBlock) {
      K::mul(w, x, next, acc);
      w.base += sizeof(typename K::Block);
      x += K::kBlock / kActValues;
    }
    put_result(a, row + r, 0, kLanes, acc);
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
