// Operations with weights: a unit of a matrix at a time, so that a caller can stop between two.
#include <algorithm>
#include <cmath>

#include "vision/encoder.h"

namespace sluice::vision {

bool Encoder::matmul(const Op& op) {
  const Mat& w = program_.mat_of(op);
  const Shape in = shape(op.in);
  if (part_ == 0) {
    status_ = apply(program_, op, &shapes_);
    if (!status_.ok()) return false;
    if (table_->act_format(w.type) == kernels::ActFormat::kQ8) {
      const size_t bytes = table_->q8_bytes(w.cols);
      const int64_t runs = (in.rows + kernels::kActTile - 1) / kernels::kActTile;
      for_rows(runs, [&](int64_t run) {
        const int64_t row = run * kernels::kActTile;
        const auto n = static_cast<int32_t>(std::min<int64_t>(kernels::kActTile, in.rows - row));
        table_->quantize_q8(at(op.in) + row * in.cols + op.in_col, in.cols, w.cols, n,
                            q8_.as<uint8_t>() + static_cast<size_t>(row) * bytes);
      });
    }
  }
  Product product;
  product.mat = op.mat;
  product.x = {at(op.in) + op.in_col, in.cols, q8_.data(), static_cast<int32_t>(in.rows)};
  product.bias = weights_->vec(op.vec);
  product.add = op.add;
  product.ldy = shape(op.out).cols;
  product.y = at(op.out) + op.out_col;
  weights_->multiply(product, part_, scratch(0), plan_.sizes.scratch_bytes);
  return ++part_ == weights_->n_units(op.mat);
}

// The matrix' rows are the inputs: each adds its multiple to the output, in their order.
bool Encoder::matmul_transposed(const Op& op) {
  const Mat& w = program_.mat_of(op);
  const Shape in = shape(op.in);
  if (part_ == 0) {
    status_ = apply(program_, op, &shapes_);
    if (!status_.ok()) return false;
    std::fill_n(at(op.out), in.rows * w.cols, 0.0f);
  }
  weights_->read_rows(op.mat, part_, [&](int64_t first, int64_t rows, const uint8_t* data) {
    const int64_t n_threads = options_.pool->n_threads();
    const int64_t block = (in.rows + n_threads - 1) / n_threads;
    options_.pool->parallel_for(n_threads, [&](int64_t task, int thread) {
      auto* values = reinterpret_cast<float*>(scratch(thread));
      const int64_t end = std::min((task + 1) * block, in.rows);
      for (int64_t row = 0; row < rows && task * block < end; ++row) {
        table_->dequantize(w.type, data + row * w.row_bytes, w.cols, values);
        for (int64_t t = task * block; t < end; ++t) {
          const float x = at(op.in)[t * in.cols + first + row];
          float* y = at(op.out) + t * w.cols;
          for (int64_t c = 0; c < w.cols; ++c) y[c] += x * values[c];
        }
      }
    });
  });
  return ++part_ == weights_->n_units(op.mat);
}

bool Encoder::add_table(const Op& op) {
  const Shape& out = shape(op.out);
  if (part_ == 0) {
    status_ = apply(program_, op, &shapes_);
    if (!status_.ok()) return false;
    const auto side =
        static_cast<uint32_t>(std::sqrt(static_cast<double>(program_.mat_of(op).rows)) + 0.5);
    taps_[0] = taps_[1] = {};
    if (op.positions != Positions::kDirect) {
      taps_[0] = axis_taps(op.positions, side, out.grid_rows);
      taps_[1] = axis_taps(op.positions, side, out.columns);
    }
  }
  weights_->read_rows(op.mat, part_, [&](int64_t first, int64_t rows, const uint8_t* data) {
    add_table_rows(op, first, rows, data);
  });
  return ++part_ == weights_->n_units(op.mat);
}

// Adds what rows [first, first + rows) of the table contribute to each patch. Rows are added in
// their order, so it does not matter how they are divided into units.
void Encoder::add_table_rows(const Op& op, int64_t first, int64_t rows, const uint8_t* data) {
  const Mat& table = program_.mat_of(op);
  const Shape& out = shape(op.out);
  const int64_t side = static_cast<int64_t>(std::sqrt(static_cast<double>(table.rows)) + 0.5);
  options_.pool->parallel_for(out.rows, [&](int64_t patch, int thread) {
    auto* values = reinterpret_cast<float*>(scratch(thread));
    float* x = at(op.out) + patch * out.cols;
    const auto add = [&](int64_t row, float weight) {
      if (row < first || row >= first + rows) return;
      table_->dequantize(table.type, data + (row - first) * table.row_bytes, table.cols, values);
      for (int64_t c = 0; c < table.cols; ++c) x[c] += weight * values[c];
    };
    if (op.positions == Positions::kDirect) return add(patch, 1);
    const Cell cell = cells_[static_cast<size_t>(patch)];
    if (op.positions == Positions::kColumnAndRow) {
      add(cell.column, 1);
      return add(table.rows / 2 + cell.row, 1);
    }
    const AxisTaps &down = taps_[0], &across = taps_[1];
    for (uint32_t i = down.first[cell.row]; i < down.first[cell.row + 1u]; ++i) {
      for (uint32_t j = across.first[cell.column]; j < across.first[cell.column + 1u]; ++j) {
        add(int64_t{down.taps[i].index} * side + across.taps[j].index,
            down.taps[i].weight * across.taps[j].weight);
      }
    }
  });
}

}  // namespace sluice::vision
