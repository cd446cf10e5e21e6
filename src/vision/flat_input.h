// An input of an encoder for an executor outside of the engine: its program with all shapes
// resolved, the numbers that depend on its grid, and its patches. All are plain 32-bit words, which
// web/gpu/pictures/input.ts reads from the engine's memory.
#pragma once

#include "vision/patches.h"
#include "vision/plan.h"

namespace sluice::vision {

// Rows and columns of `in` and `in2` are those before the operation, those of `out` those behind
// it. `table`: first float in FlatInput::tables; -1: none. It holds, by kind:
//   kAddTable   `taps` lists of rows of the matrix, each [rows]; where they have weights
//   (`weighted`),
//               [rows][taps] pairs of a row and its weight
//   kRope       cosines and sines as [rows][n / 2 cosines, n / 2 sines]; if pairs are within halves
//   of
//               a head, one such list for each half
//   kAttention  [rows] pairs: the first key that a row sees, and the one behind the last; none: all
//   kMerge, kPool  [rows][n * n] rows of `in`, -1 where there is none
//   kEmit       the row of `in` for each row of the output between `vec` and `vec2`, -1 for those
//   of
//               `vec3`; none: the rows of `in`
struct FlatOp {
  uint32_t kind, in, in2, out;
  int32_t mat, vec, vec2, vec3;
  uint32_t in_rows, in_cols, in2_rows, in2_cols, rows, cols;
  uint32_t in_col, in2_col, out_col, n, groups, skip;
  uint32_t columns;  // of the grid of `in`
  uint32_t norm, act, add, gated, channels_first, taps, weighted;
  int32_t table;
  float value, eps;
};

// Of a vector, one row.
struct FlatTensor {
  uint32_t type, rows, cols, row_bytes, file, offset_low, offset_high;
};

struct FlatInput {
  std::vector<FlatOp> ops;
  std::vector<FlatTensor> mats, vecs;
  AlignedBuffer tables, patches;  // floats
  uint64_t n_tables = 0, n_patches = 0;
  Sizes sizes;
  bool neighbours = false, halves = false;  // Angles
};

// Takes at most `budget` bytes. Errors: sizes_for()'s; kBudgetTooSmall; kOutOfMemory.
[[nodiscard]] Result<FlatInput> flatten(const Program& program, const media::Projector& projector,
                                        const kernels::Table& table, const media::Image& image,
                                        uint64_t budget);

}  // namespace sluice::vision
