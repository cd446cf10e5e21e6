#include "vision/plan.h"

#include <algorithm>
#include <cmath>

#include "vision/geometry.h"

namespace sluice::vision {
namespace {

constexpr int64_t kMaxRows = int64_t{1} << 22;                // patches of an input
constexpr uint64_t kPerUnit = sizeof(residency::Unit) + 128;  // residency's own lists
constexpr uint64_t kPerTensor = 256, kFixed = 16 << 10;

size_t index(Buf buffer) {
  return static_cast<size_t>(buffer);
}

Status misfit(const Mat& mat) {
  return error(Code::kBadShape, "the projector's tensor %s (%lld x %lld) does not fit the picture",
               mat.name.c_str(), static_cast<long long>(mat.rows),
               static_cast<long long>(mat.cols));
}

Status contradiction() {
  return error(Code::kBadShape, "the shapes of the projector's tensors contradict each other");
}

Status indivisible(uint32_t columns, uint32_t rows) {
  return error(Code::kInvalidArgument, "an input of %u x %u patches cannot be divided into tokens",
               columns, rows);
}

// Whether a table has a row for every place of the grid.
bool table_fits(const Mat& mat, const Op& op, const Shape& shape) {
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(mat.rows)) + 0.5);
  switch (op.positions) {
    case Positions::kDirect:
      return mat.rows >= shape.rows;
    case Positions::kColumnAndRow:
      return mat.rows % 2 == 0 && mat.rows / 2 >= std::max(shape.columns, shape.grid_rows);
    default:
      return mat.rows > 0 && side * side == mat.rows;
  }
}

// The shape of n x n cells of a grid as one.
Shape gathered(const Shape& in, uint32_t n, bool pooled) {
  Shape out = in;
  out.columns = (in.columns + n - 1) / n;
  out.grid_rows = (in.grid_rows + n - 1) / n;
  out.rows = int64_t{out.columns} * out.grid_rows;
  if (!pooled) out.cols = in.cols * n * n;
  if (out.order == Order::kSquares) out.order = Order::kRaster;
  return out;
}

bool on_grid(const Shape& s) {
  return s.rows == int64_t{s.columns} * s.grid_rows;
}

Status apply_grid(const Op& op, const Shape& in, Shape* out) {
  const auto n = static_cast<uint32_t>(op.n);
  const bool whole = in.columns % n == 0 && in.grid_rows % n == 0;
  // Squares are 2 x 2 patches, and a mean has no padding.
  const bool padded = op.kind == OpKind::kMerge && in.order == Order::kRaster;
  const bool squares = in.order != Order::kRaster;
  if (!on_grid(in) || (!whole && !padded) || (squares && n != 2) ||
      (op.kind == OpKind::kReshape && !squares)) {
    return indivisible(in.columns, in.grid_rows);
  }
  *out = gathered(in, n, op.kind == OpKind::kPool);
  return {};
}

Status apply_matmul(const Op& op, const Mat& mat, const Shape& in, Shape* out) {
  if (in.cols < op.in_col + mat.cols) return misfit(mat);
  if (op.add) {
    return out->cols < op.out_col + mat.rows || out->rows != in.rows ? misfit(mat) : Status();
  }
  *out = in;
  out->cols = op.total > 0 ? op.total : mat.rows;
  return out->cols < op.out_col + mat.rows ? misfit(mat) : Status();
}

}  // namespace

Status apply(const Program& program, const Op& op, Shapes* shapes) {
  const auto shape = [shapes](Buf b) -> Shape& {
    static Shape none;
    return b == Buf::kNone ? none : (*shapes)[index(b)];
  };
  const Shape in = shape(op.in);
  Shape& out = shape(op.out);
  const Mat* mat = op.mat >= 0 ? &program.mats[static_cast<size_t>(op.mat)] : nullptr;
  switch (op.kind) {
    case OpKind::kMatmul:
      return apply_matmul(op, *mat, in, &out);
    case OpKind::kMatmulT:
      if (in.cols != mat->rows) return misfit(*mat);
      out = in;
      out.cols = mat->cols;
      return {};
    case OpKind::kAddTable:
      // Rows of a class vector have places in a direct table alone.
      if (out.cols != mat->cols || !table_fits(*mat, op, out) ||
          (op.positions != Positions::kDirect && !on_grid(out))) {
        return misfit(*mat);
      }
      return {};
    case OpKind::kNorm:
    case OpKind::kClamp:
      if (in.cols < op.in_col + int64_t{op.n} * op.groups) return contradiction();
      out = in;
      return {};
    case OpKind::kRope:
      if (!on_grid(out) || out.cols < op.in_col + int64_t{op.n} * op.groups) return contradiction();
      return {};
    case OpKind::kAddSinCos:
      return on_grid(out) && out.cols == op.n ? Status() : contradiction();
    case OpKind::kAdd:
      return in.rows == out.rows && in.cols == out.cols ? Status() : contradiction();
    case OpKind::kAddMean:
      return in.rows == out.rows && in.cols == op.n * out.cols ? Status() : contradiction();
    case OpKind::kActivation:
      return !op.gated || in.values() == out.values() ? Status() : contradiction();
    case OpKind::kAppendRow:
      ++out.rows;
      return {};
    case OpKind::kRows:
      out = in;
      out.rows -= op.skip + op.drop;
      if (out.rows <= 0) return indivisible(in.columns, in.grid_rows);
      return {};
    case OpKind::kAttention: {
      const Shape& keys = shape(op.in2);
      const int64_t wide = int64_t{op.n} * op.groups;
      if (in.cols < op.in_col + wide || keys.cols < op.in2_col + 2 * wide ||
          (op.reach != Reach::kAll && (!on_grid(in) || in.order == Order::kRaster)) ||
          (op.reach == Reach::kWindow && in.order != Order::kWindows)) {
        return contradiction();
      }
      out = in;
      out.cols = wide;
      return {};
    }
    case OpKind::kMerge:
    case OpKind::kReshape:
    case OpKind::kPool:
      return apply_grid(op, in, &out);
    case OpKind::kCopy:
      out = in;
      if (op.total > 0) out.cols = op.total;
      return op.out_col + in.cols <= out.cols ? Status() : contradiction();
    case OpKind::kEmit:
      // Vectors between rows of the grid, and the order of windows, leave no place for a class row.
      return on_grid(in) || (op.vec3 < 0 && in.order != Order::kWindows) ? Status()
                                                                         : contradiction();
    case OpKind::kConstant:
      out = {op.n, op.groups, static_cast<uint32_t>(op.n), 1, Order::kRaster};
      return {};
    default:
      return {};
  }
}

int64_t emitted_rows(const Op& op, const Shapes& shapes) {
  const Shape& in = shapes[index(op.in)];
  int64_t rows = in.rows + (op.vec >= 0 ? 1 : 0) + (op.vec2 >= 0 ? 1 : 0);
  if (op.vec3 >= 0) rows += int64_t{in.grid_rows} - 1;
  return rows;
}

namespace {

// Shapes before the first operation: the patches.
Result<Shape> patch_shape(const Program& program, uint32_t width, uint32_t height) {
  const uint32_t columns = width / program.patch, rows = height / program.patch;
  const bool squares = program.order != Order::kRaster;
  if (columns == 0 || rows == 0 || int64_t{columns} * rows > kMaxRows || columns > 65535 ||
      rows > 65535 || (squares && (columns % 2 != 0 || rows % 2 != 0))) {
    return error(Code::kInvalidArgument,
                 "an input of %u x %u pixels cannot be divided into patches of %u", width, height,
                 program.patch);
  }
  const int64_t cols = int64_t{3} * program.patch * program.patch;
  return Shape{int64_t{columns} * rows, cols, columns, rows, program.order};
}

uint64_t tap_bytes(const Mat& mat, const Op& op, const Shape& shape) {
  const auto side = static_cast<uint32_t>(std::sqrt(static_cast<double>(mat.rows)) + 0.5);
  uint64_t bytes = 0;
  for (const uint32_t m : {shape.columns, shape.grid_rows}) {
    bytes += m * (sizeof(uint32_t) + sizeof(Tap) * max_taps(op.positions, side, m)) + 64;
  }
  return bytes;
}

// Bytes of n rows of f32 when packed in groups.
uint64_t packed_bytes(const kernels::Table& table, int64_t rows, int64_t cols) {
  const auto group = static_cast<int64_t>(table.row_group);
  return static_cast<uint64_t>((rows + group - 1) / group) *
         table.packed_group_bytes(kernels::Type::kF32, cols);
}

void count_attention(const Program& program, const Op& op, const kernels::Table& table,
                     const Shapes& shapes, Sizes* out) {
  const RunGrid grid{out->columns, out->rows, program.window};
  const std::vector<KeyRun> runs = key_runs(op, shapes[index(op.in2)].rows, grid, table);
  if (runs.empty()) return;
  int64_t longest = 0;
  for (const KeyRun& run : runs) longest = std::max<int64_t>(longest, run.end - run.first);
  const KeyRun& last = runs.back();
  const int64_t rows = int64_t{last.end} - last.first;
  out->key_bytes = std::max(out->key_bytes, last.keys_at + packed_bytes(table, rows, op.n));
  out->value_bytes = std::max(out->value_bytes, last.values_at + packed_bytes(table, op.n, rows));
  const auto queries = static_cast<uint64_t>(shapes[index(op.out)].rows);
  out->tiles = std::max<uint64_t>(out->tiles, queries / kQueryTile + runs.size() + 1);
  out->key_runs = std::max<uint64_t>(out->key_runs, runs.size());
  const uint64_t scores = round_up_to_line(static_cast<uint64_t>(kQueryTile * longest) * 4);
  const uint64_t multiply = std::max(table.matmul_scratch(kernels::Type::kF32, longest),
                                     table.matmul_scratch(kernels::Type::kF32, op.n));
  const auto group = static_cast<uint64_t>(table.row_group);
  const uint64_t pack = group * static_cast<uint64_t>(std::max<int64_t>(longest, op.n)) * 4;
  out->scratch_bytes =
      std::max({out->scratch_bytes, round_up_to_line(scores + multiply), round_up_to_line(pack)});
}

void count_op(const Program& program, const Op& op, const kernels::Table& table,
              const Shapes& shapes, Sizes* out) {
  const auto need = [out](uint64_t bytes) {
    out->scratch_bytes = std::max(out->scratch_bytes, round_up_to_line(bytes));
  };
  if (op.kind == OpKind::kAttention) {
    count_attention(program, op, table, shapes, out);
  }
  if (op.mat < 0) return;
  const Mat& mat = program.mats[static_cast<size_t>(op.mat)];
  need(table.matmul_scratch(mat.type, mat.cols));
  need(static_cast<uint64_t>(table.row_group * mat.row_bytes));
  need(static_cast<uint64_t>(mat.cols) * sizeof(float));
  if (op.kind == OpKind::kAddTable) {
    out->geometry_bytes += tap_bytes(mat, op, shapes[index(op.out)]);
  } else if (op.kind == OpKind::kMatmul && table.act_format(mat.type) == kernels::ActFormat::kQ8) {
    const auto rows = static_cast<uint64_t>(shapes[index(op.in)].rows);
    out->q8_bytes = std::max(out->q8_bytes, rows * table.q8_bytes(mat.cols));
  }
}

}  // namespace

std::vector<KeyRun> key_runs(const Op& op, int64_t keys, const RunGrid& grid,
                             const kernels::Table& table) {
  std::vector<uint32_t> ends;
  if (op.reach == Reach::kWindow) {
    ends = window_ends(grid.columns, grid.rows, grid.window);
  } else {
    const int64_t step = op.reach == Reach::kSquare ? 4 : std::max<int64_t>(keys, 1);
    for (int64_t end = step; end <= keys; end += step) ends.push_back(static_cast<uint32_t>(end));
  }
  std::vector<KeyRun> out;
  out.reserve(ends.size());
  KeyRun run;
  for (const uint32_t end : ends) {
    run.end = end;
    out.push_back(run);
    const int64_t rows = int64_t{run.end} - run.first;
    run.keys_at += packed_bytes(table, rows, op.n);
    run.values_at += packed_bytes(table, op.n, rows);
    run.first = end;
  }
  return out;
}

Result<Sizes> sizes_for(const Program& program, const kernels::Table& table, uint32_t width,
                        uint32_t height) {
  Result<Shape> patches = patch_shape(program, width, height);
  if (!patches.ok()) return patches.status();
  Sizes out;
  out.columns = patches->columns;
  out.rows = patches->grid_rows;
  out.geometry_bytes = static_cast<uint64_t>(patches->rows) * sizeof(Cell) * 2;
  out.geometry_bytes += (uint64_t{out.columns} + out.rows) * 4 * sizeof(float) *
                        static_cast<uint64_t>(std::max(program.head_dim, 0));
  out.scratch_bytes = static_cast<uint64_t>(program.head_dim) * 4 * sizeof(float);
  Shapes shapes;
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kPatches) shapes[index(op.out)] = *patches;
    SLUICE_RETURN_IF_ERROR(apply(program, op, &shapes));
    if (op.kind == OpKind::kEmit) {
      const int64_t rows = emitted_rows(op, shapes);
      if (out.n_tokens != 0 && out.n_tokens != rows) return contradiction();
      out.n_tokens = rows;
    }
    count_op(program, op, table, shapes, &out);
    for (size_t i = 0; i < kBuffers; ++i) {
      out.buffers[i] = std::max(out.buffers[i], shapes[i].values());
    }
  }
  return out;
}

std::vector<residency::MatrixSpec> matrix_specs(const Program& program,
                                                const kernels::Table& table) {
  std::vector<residency::MatrixSpec> out;
  out.reserve(program.vecs.size() + program.mats.size());
  for (const Vec& vec : program.vecs) {
    out.push_back({.kind = residency::MatrixKind::kVector,
                   .file = vec.file,
                   .offset = vec.offset,
                   .rows = 1,
                   .row_bytes = static_cast<int64_t>(vec.bytes),
                   .packed_group_bytes = vec.n * static_cast<int64_t>(sizeof(float))});
  }
  for (const Mat& mat : program.mats) {
    const auto packed = static_cast<int64_t>(table.packed_group_bytes(mat.type, mat.cols));
    out.push_back({.kind = residency::MatrixKind::kDense,
                   .file = mat.file,
                   .offset = mat.offset,
                   .rows = mat.rows,
                   .row_bytes = mat.row_bytes,
                   .packed_group_bytes = packed,
                   .plain = mat.plain});
  }
  return out;
}

namespace {

uint64_t activation_bytes(const Sizes& sizes, int n_threads) {
  uint64_t bytes = sizes.geometry_bytes + sizes.q8_bytes;
  for (const int64_t values : sizes.buffers) {
    bytes += round_up_to_line(static_cast<uint64_t>(values) * sizeof(float));
  }
  bytes += round_up_to_line(sizes.key_bytes) + round_up_to_line(sizes.value_bytes);
  bytes += sizes.tiles * sizeof(QueryTile) + sizes.key_runs * sizeof(KeyRun);
  return bytes + static_cast<uint64_t>(n_threads) * sizes.scratch_bytes;
}

}  // namespace

Result<EncoderPlan> make_plan(const Program& program, const kernels::Table& table,
                              const Sizes& sizes, int n_threads, uint64_t base_bytes,
                              uint64_t budget) {
  EncoderPlan plan;
  plan.sizes = sizes;
  plan.base_bytes = base_bytes;
  plan.activation_bytes = activation_bytes(sizes, n_threads);
  const std::vector<residency::MatrixSpec> specs = matrix_specs(program, table);
  uint64_t most_units = 0;
  for (const Vec& vec : program.vecs) {
    plan.small_tensor_bytes += round_up_to_line(static_cast<uint64_t>(vec.n) * sizeof(float));
  }
  for (const residency::MatrixSpec& spec : specs) {
    most_units += static_cast<uint64_t>(spec.rows / table.row_group) + 1;
  }
  const uint64_t own = kFixed + specs.size() * (kPerTensor + 2 * sizeof(residency::MatrixSpec)) +
                       program.ops.size() * sizeof(Op) + sizeof(residency::FillQueue);
  const uint64_t rest = base_bytes + plan.activation_bytes + plan.small_tensor_bytes + own;
  const uint64_t bound = most_units * kPerUnit;
  plan.minimum = rest + bound + residency::minimum_budget(specs, table.row_group);
  if (budget > 0 && budget < plan.minimum) {
    return error(Code::kBudgetTooSmall,
                 "encoding a picture of this size needs a memory budget of %llu bytes; it is %llu",
                 static_cast<unsigned long long>(plan.minimum),
                 static_cast<unsigned long long>(budget));
  }
  // The lists of units take memory too: fewer where the units are large.
  uint64_t lists = 0;
  for (int attempt = 0;; ++attempt) {
    if (attempt == 4) lists = bound;
    const uint64_t left = budget == 0 ? UINT64_MAX / 2 : budget - std::min(budget, rest + lists);
    plan.weights = residency::make_plan(specs, table.row_group, left);
    plan.bookkeeping_bytes = own + plan.weights.units.size() * kPerUnit;
    if (attempt == 4 || (!plan.weights.units.empty() && (budget == 0 || plan.total() <= budget))) {
      break;
    }
    lists = plan.bookkeeping_bytes - own;
  }
  return plan;
}

}  // namespace sluice::vision
