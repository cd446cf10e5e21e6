// What targets with four lanes share: loads and stores of fewer lanes, and the operations of
// generic/unpacked_gemv.h. 16 columns of one row fill a vector, where packed weights have four
// columns of four rows. The target provides load_row and load_signed_row: 16 activations (from
// column 16, one half of a block) in the order that its dot products expect beside 16 codes of one
// row.
#pragma once

#include <string.h>

#include "kernels/generic/pack.h"
#include "kernels/isa/lane_bytes.h"

#define SLUICE_DIRECT 1

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// The first n lanes (0 <= n <= kLanes); the others are 0. Reads n floats only.
SLUICE_INLINE F32 load_n(const float* p, int n) {
  if (n == kLanes) return load(p);
  float each[kLanes] = {};
  for (int i = 0; i < n; ++i) each[i] = p[i];
  return load(each);
}
SLUICE_INLINE void store_n(float* p, F32 a, int n) {
  if (n == kLanes) return store(p, a);
  float each[kLanes];
  store(each, a);
  for (int i = 0; i < n; ++i) p[i] = each[i];
}

// Lane i is the sum of the lanes of m[i].
SLUICE_INLINE I32 reduce_add_each(const I32 (&m)[kLanes]) {
  const Lanes a = lanes(m[0]), b = lanes(m[1]), c = lanes(m[2]), d = lanes(m[3]);
  const Lanes ab =
      __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
  const Lanes cd =
      __builtin_shufflevector(c, d, 0, 2, 4, 6) + __builtin_shufflevector(c, d, 1, 3, 5, 7);
  return lanes_of(__builtin_shufflevector(ab, cd, 0, 2, 4, 6) +
                  __builtin_shufflevector(ab, cd, 1, 3, 5, 7));
}

// Four rows of blocks, `stride` bytes apart in memory.
struct FileRows {
  const uint8_t* base;
  size_t stride;
  SLUICE_INLINE_METHOD const uint8_t* at(int r, size_t offset) const {
    return base + static_cast<size_t>(r) * stride + offset;
  }
  SLUICE_INLINE_METHOD void advance(size_t bytes) { base += bytes; }
};

// 16 bytes of each row, loaded on use; [r] is row r's.
struct Run {
  FileRows rows;
  SLUICE_INLINE_METHOD Bytes operator[](int r) const { return load_bytes(rows.at(r, 0)); }
};
SLUICE_INLINE Run load_run(FileRows w, size_t offset) {
  w.advance(offset);
  return {w};
}
// Loads dword i of each row into out[i].
SLUICE_INLINE void load_row_columns(FileRows w, size_t offset, Bytes (&out)[4]) {
  const uint8_t* rows[4];
  SLUICE_UNROLL for (int r = 0; r < 4; ++r) rows[r] = w.at(r, offset);
  Dwords columns[4];
  load_columns(rows, columns);
  SLUICE_UNROLL for (int i = 0; i < 4; ++i) out[i] = __builtin_bit_cast(Bytes, columns[i]);
}
// One f16 of each row.
using RowHalves = uint64_t;
SLUICE_INLINE RowHalves load_row_halves(FileRows w, size_t offset) {
  f16 h[4];
  SLUICE_UNROLL for (int r = 0; r < 4; ++r) memcpy(&h[r], w.at(r, offset), sizeof h[r]);
  return join_halves(h);
}

// Lane r: the sum over kRuns runs of 16 columns, from column 16 * first of x on. Their codes are
// codes(i, run), with i as in Run.
template <int kMax, int kRuns, class F>
SLUICE_INLINE I32 dot_runs(const ActBlock& x, int first, const F& codes) {
  using S = Sum<kMax, 4 * kRuns>;
  Quad q[kRuns];
  SLUICE_UNROLL for (int run = 0; run < kRuns; ++run) q[run] = load_row(x, first + run);
  I32 sums[kLanes];
  SLUICE_UNROLL for (int r = 0; r < kLanes; ++r) {
    S sum = start<S>(splat_i32(0));
    SLUICE_UNROLL for (int run = 0; run < kRuns; ++run) {
      sum = dot(sum, prepare(codes(r, run)), q[run]);
    }
    settle(sum);
    sums[r] = finish(sum);
  }
  return reduce_add_each(sums);
}
// The same for 32 columns of signed codes.
template <class F>
SLUICE_INLINE I32 dot_signed_runs(const ActBlock& x, const F& codes) {
  const SignedQuad q[2] = {load_signed_row(x, 0), load_signed_row(x, 1)};
  I32 sums[kLanes];
  SLUICE_UNROLL for (int r = 0; r < kLanes; ++r) {
    sums[r] = splat_i32(0);
    SLUICE_UNROLL for (int run = 0; run < 2; ++run) {
      sums[r] = dot_signed(sums[r], prepare_signed(codes(r, run)), q[run]);
    }
  }
  return reduce_add_each(sums) + signed_offset(x.m.nsum);
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
