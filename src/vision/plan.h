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
// Key rows that are seen together, [first, end), and where a head's are packed, in bytes.
struct KeyRun {
  uint32_t first = 0, end = 0;
  uint64_t keys_at = 0, values_at = 0;
};
struct QueryTile {
  uint32_t begin = 0, end = 0;  // query rows
  uint32_t run = 0;             // of keys
};

// Sizes of everything but weights for an input, in values unless noted.
struct Sizes {
  std::array<int64_t, kBuffers> buffers{};
  uint32_t columns = 0, rows = 0;           // patches
  int64_t n_tokens = 0;                     // rows of the output
  uint64_t key_bytes = 0, value_bytes = 0;  // of one head, packed, the largest
  uint64_t tiles = 0, key_runs = 0;
  uint64_t q8_bytes = 0;        // rounded activations
  uint64_t scratch_bytes = 0;   // of each thread
  uint64_t geometry_bytes = 0;  // order of the patches, angles, places in tables
};
// The runs of an attention's keys. `grid`: the patches' columns and rows, and Program::window.
struct RunGrid {
  uint32_t columns = 0, rows = 0, window = 0;
};
[[nodiscard]] std::vector<KeyRun> key_runs(const Op& op, int64_t keys, const RunGrid& grid,
                                           const kernels::Table& table);

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
