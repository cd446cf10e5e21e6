// Operations without matrices. Each row is computed by itself.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "vision/encoder.h"

namespace sluice::vision {

void Encoder::run_simple(const Op& op, const Shapes& before) {
  const Shape in = op.in == Buf::kNone ? Shape{} : before[static_cast<size_t>(op.in)];
  const Shape out = op.out == Buf::kNone ? Shape{} : shape(op.out);
  float* const x = op.in == Buf::kNone ? nullptr : at(op.in);
  float* const y = op.out == Buf::kNone ? nullptr : at(op.out);
  const float *v = weights_->vec(op.vec), *v2 = weights_->vec(op.vec2);
  switch (op.kind) {
    case OpKind::kNorm:
      return norm(op);
    case OpKind::kRope:
      return rope(op);
    case OpKind::kActivation:
      return activation(op);
    case OpKind::kMerge:
      return merge(op, in);
    case OpKind::kPool:
      return pool_cells(op, in);
    case OpKind::kEmit:
      return emit(op);
    case OpKind::kAddSinCos:
      return add_sin_cos(op);
    case OpKind::kAdd:
      return for_rows(out.rows, [&](int64_t row) {
        table_->add(y + row * out.cols, x + row * out.cols, out.cols, y + row * out.cols);
      });
    case OpKind::kScale:
      return for_rows(out.rows, [&](int64_t row) {
        table_->scale(y + row * out.cols, op.value, out.cols, y + row * out.cols);
      });
    case OpKind::kScalar:
      return for_rows(out.rows, [&](int64_t row) {
        table_->scale(y + row * out.cols, v[0], out.cols, y + row * out.cols);
      });
    case OpKind::kAppendRow:
      std::copy_n(v, out.cols, y + (out.rows - 1) * out.cols);
      return;
    case OpKind::kRows:
      std::memmove(y, x + op.skip * in.cols, static_cast<size_t>(out.values()) * sizeof(float));
      return;
    case OpKind::kAffine:
      return for_rows(out.rows, [&](int64_t row) {
        float* at_row = y + row * out.cols;
        for (int64_t c = 0; c < out.cols; ++c) {
          if (v2 != nullptr) at_row[c] -= v2[c];
          if (v != nullptr) at_row[c] *= v[c];
        }
      });
    case OpKind::kClamp:
      return for_rows(in.rows, [&](int64_t row) {
        for (int64_t c = op.in_col; c < op.in_col + op.n; ++c) {
          float value = x[row * in.cols + c];
          if (v != nullptr) value = std::max(value, v[0]);
          if (v2 != nullptr) value = std::min(value, v2[0]);
          y[row * out.cols + c] = value;
        }
      });
    case OpKind::kCopy:
      return for_rows(in.rows, [&](int64_t row) {
        std::copy_n(x + row * in.cols, in.cols, y + row * out.cols + op.out_col);
      });
    case OpKind::kConstant:
      std::copy_n(v, out.values(), y);
      return;
    case OpKind::kAddMean:
      return for_rows(out.rows, [&](int64_t row) {
        for (int64_t c = 0; c < out.cols; ++c) {
          float sum = 0;
          for (int64_t i = 0; i < op.n; ++i) sum += x[row * in.cols + i * out.cols + c];
          y[row * out.cols + c] += sum / static_cast<float>(op.n);
        }
      });
    default:  // kReshape: the values stay where they are
      return;
  }
}

void Encoder::norm(const Op& op) {
  const Shape& s = shape(op.out);
  const float *weight = weights_->vec(op.vec), *bias = weights_->vec(op.vec2);
  for_rows(s.rows, [&](int64_t row) {
    for (int32_t group = 0; group < op.groups; ++group) {
      const float* x = at(op.in) + row * s.cols + op.in_col + int64_t{group} * op.n;
      float* y = at(op.out) + row * s.cols + op.in_col + int64_t{group} * op.n;
      if (op.norm == NormKind::kRms) {
        table_->rms_norm(x, weight, op.eps, op.n, y);
      } else {
        table_->layer_norm(x, weight, bias, op.eps, op.n, y);
      }
    }
  });
}

void Encoder::rope(const Op& op) {
  const Shape& s = shape(op.out);
  const Angles angles = rope_angles(program_.rope, op.n);
  const int32_t quarter = op.n / 4;
  const auto bytes = static_cast<size_t>(quarter) * sizeof(float);
  options_.pool->parallel_for(s.rows, [&](int64_t row, int thread) {
    auto* cos = reinterpret_cast<float*>(scratch(thread));
    float* sin = cos + 2 * quarter;
    const Cell cell = cells_[static_cast<size_t>(row)];
    for (int half = 0; half < 2; ++half) {
      const size_t axis = (half == 0) == angles.row_first ? 0 : 1;
      const size_t from = size_t{axis == 0 ? cell.row : cell.column} * static_cast<size_t>(quarter);
      std::memcpy(cos + half * quarter, angles_[axis].cos.data() + from, bytes);
      std::memcpy(sin + half * quarter, angles_[axis].sin.data() + from, bytes);
    }
    for (int32_t head = 0; head < op.groups; ++head) {
      float* x = at(op.out) + row * s.cols + op.in_col + int64_t{head} * op.n;
      if (!angles.halves) {
        table_->rope(x, cos, sin, op.n, !angles.neighbours);
        continue;
      }
      table_->rope(x, cos, sin, op.n / 2, true);
      table_->rope(x + op.n / 2, cos + quarter, sin + quarter, op.n / 2, true);
    }
  });
}

// x sigmoid(1.702 x) is SiLU(1.702 x) / 1.702.
void Encoder::activation(const Op& op) {
  constexpr float kQuick = 1.702f;
  const Shape& s = shape(op.out);
  for_rows(s.rows, [&](int64_t row) {
    float* y = at(op.out) + row * s.cols;
    float* x = op.gated ? at(op.in) + row * s.cols : y;  // the gate is not needed again
    switch (op.act) {
      case Activation::kGeluTanh:
        return op.gated ? table_->gelu_mul(x, y, s.cols, y) : table_->gelu_tanh(x, s.cols, y);
      case Activation::kSilu:
        return op.gated ? table_->silu_mul(x, y, s.cols, y) : table_->silu(x, s.cols, y);
      case Activation::kGeluErf:
        table_->gelu_erf(x, s.cols, x);
        break;
      case Activation::kGeluQuick:
        table_->scale(x, kQuick, s.cols, x);
        table_->silu(x, s.cols, x);
        table_->scale(x, 1 / kQuick, s.cols, x);
        break;
    }
    for (int64_t c = 0; op.gated && c < s.cols; ++c) y[c] *= x[c];
  });
}

// n x n cells of the grid side by side: row, column, channel, or channel first.
void Encoder::merge(const Op& op, const Shape& in) {
  const Shape& out = shape(op.out);
  const int64_t n = op.n, cells = n * n;
  for_rows(out.rows, [&](int64_t row) {
    float* y = at(op.out) + row * out.cols;
    const int64_t top = row / out.columns * n, left = row % out.columns * n;
    for (int64_t i = 0; i < cells; ++i) {
      const int64_t down = top + i / n, right = left + i % n;
      const bool inside = down < in.grid_rows && right < in.columns;
      const int64_t from = in.order == Order::kRaster ? down * in.columns + right : row * cells + i;
      const float* x = at(op.in) + from * in.cols;
      for (int64_t c = 0; c < in.cols; ++c) {
        y[op.channels_first ? c * cells + i : i * in.cols + c] = inside ? x[c] : 0;
      }
    }
  });
}

void Encoder::pool_cells(const Op& op, const Shape& in) {
  const Shape& out = shape(op.out);
  const int64_t n = op.n;
  for_rows(out.rows, [&](int64_t row) {
    float* y = at(op.out) + row * out.cols;
    std::fill_n(y, out.cols, 0.0f);
    const int64_t top = row / out.columns * n, left = row % out.columns * n;
    for (int64_t i = 0; i < n * n; ++i) {
      const float* x = at(op.in) + ((top + i / n) * in.columns + left + i % n) * in.cols;
      table_->add(y, x, out.cols, y);
    }
    table_->scale(y, 1.0f / static_cast<float>(n * n), out.cols, y);
  });
}

// Rows to the caller's output in raster order, with the projector's own vectors around them.
void Encoder::emit(const Op& op) {
  const Shape& in = shape(op.in);
  const int64_t width = program_.n_out;
  float* const out = out_.data() + op.out_col;
  const float *before = weights_->vec(op.vec), *after = weights_->vec(op.vec2);
  const float* between = weights_->vec(op.vec3);
  const int64_t columns = in.columns;
  for_rows(in.rows, [&](int64_t row) {
    int64_t place = row;
    if (in.order == Order::kWindows) {  // tokens are squares of patches
      const Cell cell = cells_[static_cast<size_t>(4 * row)];
      place = cell.row / 2 * columns + cell.column / 2;
    }
    if (between != nullptr) place += place / columns;
    if (before != nullptr) ++place;
    std::copy_n(at(op.in) + row * in.cols, in.cols, out + place * width);
  });
  const int64_t rows = emitted_rows(op, shapes_);
  if (before != nullptr) std::copy_n(before, in.cols, out);
  if (after != nullptr) std::copy_n(after, in.cols, out + (rows - 1) * width);
  for (int64_t row = 1; between != nullptr && row < in.grid_rows; ++row) {
    std::copy_n(between, in.cols, out + (row * (columns + 1) - 1) * width);
  }
}

// Adds [sin, cos of the column, sin, cos of the row], a quarter of the values each, with the
// frequencies 10000^(-4i / n).
void Encoder::add_sin_cos(const Op& op) {
  const Shape& s = shape(op.out);
  const int64_t quarter = op.n / 4;
  for_rows(s.rows, [&](int64_t row) {
    const Cell cell = cells_[static_cast<size_t>(row)];
    float* x = at(op.out) + row * s.cols;
    for (int64_t i = 0; i < quarter; ++i) {
      const double turn = std::pow(10000.0, -4.0 * static_cast<double>(i) / op.n);
      const double across = cell.column * turn, down = cell.row * turn;
      x[i] += static_cast<float>(std::sin(across));
      x[quarter + i] += static_cast<float>(std::cos(across));
      x[2 * quarter + i] += static_cast<float>(std::sin(down));
      x[3 * quarter + i] += static_cast<float>(std::cos(down));
    }
  });
}

}  // namespace sluice::vision
