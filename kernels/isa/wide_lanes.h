// Operations of generic/unpacked_gemv.h for targets with eight and sixteen lanes. 16 bytes of each
// row are transposed in registers to the vectors of packed weights. That takes as many instructions
// as multiplying row by row and gathering the sums, and the dot product stays the same. The target
// provides transpose_rows.
#pragma once

#define SLUICE_DIRECT 1
#define SLUICE_WIDE_LANES 1

#include "kernels/generic/pack.h"
#include "kernels/isa/lane_bytes.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// kLanes rows of blocks, four per pointer. Distances are hidden from the compiler: otherwise it
// chains additions of the rows, or keeps sixteen offsets, which do not fit the registers.
struct FileRows {
  const uint8_t* base[kLanes / 4];
  size_t stride, stride3;
  SLUICE_INLINE_METHOD FileRows(const uint8_t* first, size_t bytes)
      : stride(bytes), stride3(3 * bytes) {
    SLUICE_UNROLL for (int i = 0; i < kLanes / 4; ++i) {
      base[i] = again<0>(first + static_cast<size_t>(4 * i) * bytes);
    }
    asm("" : "+r"(stride), "+r"(stride3));
  }
  SLUICE_INLINE_METHOD const uint8_t* at(int r, size_t offset) const {
    const uint8_t* p = base[r / 4] + offset;
    return r % 4 == 3 ? p + stride3 : p + static_cast<size_t>(r % 4) * stride;
  }
  SLUICE_INLINE_METHOD void advance(size_t bytes) {
    SLUICE_UNROLL for (int i = 0; i < kLanes / 4; ++i) base[i] += bytes;
  }
};

// 16 bytes of each row, transposed: [i] has dword i of each row.
struct Run {
  Bytes v[4];
  SLUICE_INLINE_METHOD Bytes operator[](int i) const { return v[i]; }
};
SLUICE_INLINE Run load_run(const FileRows& w, size_t offset) {
  const uint8_t* rows[kLanes];
  SLUICE_UNROLL for (int r = 0; r < kLanes; ++r) rows[r] = w.at(r, offset);
  Run run;
  transpose_rows(rows, run.v);
  return run;
}
SLUICE_INLINE void load_row_columns(const FileRows& w, size_t offset, Bytes (&out)[4]) {
  const Run run = load_run(w, offset);
  SLUICE_UNROLL for (int i = 0; i < 4; ++i) out[i] = run[i];
}
// One f16 of each row, assembled in groups of four in general registers: the vector units are busy.
typedef uint64_t RowHalves __attribute__((vector_size(2 * kLanes)));
SLUICE_INLINE RowHalves load_row_halves(const FileRows& w, size_t offset) {
  RowHalves all;
  SLUICE_UNROLL for (int i = 0; i < kLanes / 4; ++i) {
    f16 h[4];
    SLUICE_UNROLL for (int r = 0; r < 4; ++r) memcpy(&h[r], w.at(4 * i + r, offset), sizeof h[r]);
    uint64_t four = join_halves(h);
    asm("" : "+r"(four));
    all[i] = four;
  }
  return all;
}

// Lane r: the sum over kRuns runs of 16 columns, from column 16 * first of x on. Their codes are
// codes(i, run), with i as in Run.
template <int kMax, int kRuns, class F>
SLUICE_INLINE I32 dot_runs(const ActBlock& x, int first, const F& codes) {
  using S = Sum<kMax, 4 * kRuns>;
  constexpr int kEvery = kSettleEvery<S> < 4 * kRuns ? kSettleEvery<S> : 4 * kRuns;
  S sum = start<S>(splat_i32(0));
  SLUICE_UNROLL for (int j = 0; j < 4 * kRuns; ++j) {
    const int run = j % kRuns, i = j / kRuns;
    sum = dot(sum, prepare(codes(i, run)), load_quad(x, 4 * (first + run) + i));
    if ((j + 1) % kEvery == 0) settle(sum);
  }
  return finish(sum);
}
// The same for 32 columns of signed codes.
template <class F>
SLUICE_INLINE I32 dot_signed_runs(const ActBlock& x, const F& codes) {
  I32 sum = signed_offset(x.m.nsum);
  SLUICE_UNROLL for (int j = 0; j < 8; ++j) {
    sum = dot_signed(sum, prepare_signed(codes(j % 4, j / 4)), load_signed_quad(x, j));
  }
  return sum;
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
