// A vision encoder as a list of operations over a few buffers, like the programs of text models
// (model/program.h). What differs between families is which operations there are; builder.h makes
// them from a projector's header. The list holds for every size of picture: numbers of rows follow
// from the grid of patches when a picture is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "kernels/kernels.h"

namespace sluice::vision {

// Activations, f32 [rows][cols]. Their sizes are those of the largest contents.
enum class Buf : uint8_t {
  kX,     // residual stream
  kY,     // normalized, or the heads' results
  kH,     // patches; queries, keys and values; hidden layer of an FFN
  kG,     // gate of an FFN; queries of a resampler
  kT,     // what is transformed before it is added
  kF,     // features of several layers side by side
  kNone,  // the caller's output is not a buffer
};
inline constexpr size_t kBuffers = 6;

enum class OpKind : uint8_t {
  kPatches,     // out = pixels of each patch: channel, row, column; `n` pixels a side
  kMatmul,      // out[:, out_col..] = (add ? itself : 0) + W in[:, in_col..] + bias
  kMatmulT,     // the same for a matrix that is stored transposed: out = in W
  kNorm,        // out = norm of each of `groups` runs of n values from in_col on
  kAdd,         // out += in
  kAddTable,    // out[patch] += rows of a table of positions
  kAppendRow,   // a last row, the vector
  kRows,        // out = in without the first `skip` and the last `drop` rows
  kRope,        // rotates `groups` heads of n values from in_col on, in place
  kAttention,   // out = heads' results; queries in `in`, the rest in `in2`
  kActivation,  // out = f(out), or f(in) * out if gated
  kMerge,       // out = n x n rows of the grid side by side, padded with zeros
  kReshape,     // n rows side by side are one, in place; the grid shrinks
  kPool,        // out = mean over n x n rows of the grid
  kScale,       // in place: x * value
  kAffine,      // in place: (x - bias) * weight, each optional
  kClamp,       // out = in within [minimum, maximum], two vectors of one value
  kScalar,      // in place: x * a vector's only value
  kCopy,        // out[:, out_col..] = in
  kConstant,    // out = a vector as [n][groups]
  kAddSinCos,   // in place: positions of a resampler's keys, n columns
  kAddMean,     // out += mean of the n vectors side by side in `in`
  kEmit,        // columns of the encoder's output, in raster order, with vectors before, after and
                // between rows
};

enum class NormKind : uint8_t { kLayer, kRms };
enum class Activation : uint8_t { kGeluTanh, kGeluErf, kGeluQuick, kSilu };
// Order of the patches' rows: by rows; squares of 2 x 2; squares of 2 x 2 by windows.
enum class Order : uint8_t { kRaster, kSquares, kWindows };
enum class Reach : uint8_t { kAll, kWindow, kSquare };  // which rows a row attends to
// How rows of a table become the positions of a grid.
enum class Positions : uint8_t {
  kNone,
  kDirect,        // row i of the table for row i
  kAligned,       // resized bilinearly, corners aligned
  kAntialiased,   // resized bilinearly, the filter widened when reducing
  kBicubic,       // resized, a = -0.75, half-pixel centres
  kBuckets,       // the cell of a square table that the patch lies in
  kColumnAndRow,  // the sum of two tables' rows: of the column, and of the row
};
// Which values of a head pair, and what turns them; see rope_angles() in geometry.h.
enum class Rope : uint8_t { kNone, kVision, kPixtral, kKimi, kGemma };

struct Op {
  OpKind kind{};
  Buf in = Buf::kX, in2 = Buf::kH, out = Buf::kX;
  int32_t mat = -1;
  int32_t vec = -1, vec2 = -1, vec3 = -1;  // weight and bias; minimum and maximum; before, after,
                                           // between rows
  int32_t in_col = 0, in2_col = 0, out_col = 0;
  int32_t total = 0;  // columns of `out`; 0: what is written
  int32_t n = 0, groups = 1;
  int32_t skip = 0, drop = 0;
  float value = 1, eps = 0;
  NormKind norm = NormKind::kLayer;
  Activation act = Activation::kGeluTanh;
  Positions positions = Positions::kNone;
  Reach reach = Reach::kAll;
  bool add = false, gated = false, channels_first = false;
};

struct Mat {  // [rows][cols]
  std::string name;
  kernels::Type type{};
  int64_t rows = 0, cols = 0, row_bytes = 0;
  uint32_t file = 0;
  uint64_t offset = 0;
  bool plain = false;  // read row by row: a table, or stored transposed
};

struct Vec {  // n values, in memory as f32
  std::string name;
  kernels::Type type{};
  int64_t n = 0;
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
};

struct Program {
  std::vector<Op> ops;
  std::vector<Mat> mats;  // in order of use; each is used once
  std::vector<Vec> vecs;
  uint32_t patch = 0;    // pixels a side
  bool shifted = false;  // values 2x - 1
  Order order = Order::kRaster;
  uint32_t window = 0;  // side of a window in squares, kWindows
  Rope rope = Rope::kNone;
  int32_t head_dim = 0;
  int32_t n_out = 0;  // values of an output token

  [[nodiscard]] const Mat& mat_of(const Op& op) const { return mats[static_cast<size_t>(op.mat)]; }
};

}  // namespace sluice::vision
