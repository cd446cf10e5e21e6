// What an encoder needs for one input, before anything is read: the shapes of all buffers, and
// every byte of the budget.
#pragma once

#include <array>

#include "residency/residency.h"
#include "vision/program.h"

namespace sluice::vision {

// Contents of a buffer: rows of a grid of patches or tokens, unless rows were added or dropped.
struct Shape {
  int64_t rows = 0, cols = 0;
  uint32_t columns = 0, grid_rows = 0;
  Order order = Order::kRaster;

  [[nodiscard]] int64_t values() const { return rows * cols; }
};
using Shapes = std::array<Shape, kBuffers>;

// Applies an operation to the shapes: what the buffers hold behind it. Errors: kBadShape, naming a
// tensor that does not fit; kInvalidArgument (an input that the encoder cannot divide).
[[nodiscard]] Status apply(const Program& program, const Op& op, Shapes* shapes);
// Rows of the encoder's output of a kEmit operation.
[[nodiscard]] int64_t emitted_rows(const Op& op, const Shapes& shapes);

// Query rows that a thread computes at a time.
inline constexpr int64_t kQueryTile = 32;

// Sizes of everything but weights for an input, in values unless noted.
struct Sizes {
  std::array<int64_t, kBuffers> buffers{};
  uint32_t columns = 0, rows = 0;       // patches
  int64_t n_tokens = 0;                 // rows of the output
  int64_t head_rows = 0, head_dim = 0;  // of one head's keys, the largest
  int64_t tiles = 0;                    // of queries
  uint64_t q8_bytes = 0;                // rounded activations
  uint64_t scratch_bytes = 0;           // of each thread
  uint64_t geometry_bytes = 0;          // order of the patches, angles, places in tables
};
[[nodiscard]] Result<Sizes> sizes_for(const Program& program, const kernels::Table& table,
                                      uint32_t width, uint32_t height);

struct EncoderPlan {
  Sizes sizes;
  residency::Plan weights;
  uint64_t base_bytes = 0;          // of the caller
  uint64_t activation_bytes = 0;    // buffers, scratch of all threads, geometry
  uint64_t small_tensor_bytes = 0;  // norms and biases, as f32
  uint64_t bookkeeping_bytes = 0;
  uint64_t minimum = 0;  // the smallest budget that works

  [[nodiscard]] uint64_t total() const {
    return base_bytes + activation_bytes + small_tensor_bytes + bookkeeping_bytes +
           weights.pinned_bytes + weights.ring_bytes();
  }
};

// Matrices and vectors in order of use, for residency: first all vectors, then the matrices.
[[nodiscard]] std::vector<residency::MatrixSpec> matrix_specs(const Program& program,
                                                              const kernels::Table& table);

// budget 0: no limit. Errors: kBudgetTooSmall, naming the smallest budget that works.
[[nodiscard]] Result<EncoderPlan> make_plan(const Program& program, const kernels::Table& table,
                                            const Sizes& sizes, int n_threads, uint64_t base_bytes,
                                            uint64_t budget);

}  // namespace sluice::vision
