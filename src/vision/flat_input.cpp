#include "vision/flat_input.h"

#include <algorithm>

namespace sluice::vision {
namespace {

template <typename T>
uint32_t word(T value) {
  return static_cast<uint32_t>(value);
}

// Counts floats, or writes them once there is memory.
class Floats {
 public:
  void put(float value) {
    if (out_ != nullptr) out_[n_] = value;
    ++n_;
  }
  template <typename T>
  void put(T value) {
    put(static_cast<float>(value));
  }
  void begin(float* out) {
    out_ = out;
    n_ = 0;
  }
  [[nodiscard]] size_t size() const { return n_; }

 private:
  float* out_ = nullptr;
  size_t n_ = 0;
};

// Walks through a program for one grid. The first walk makes the operations and counts the floats
// of their tables, the second one writes these.
class Flattener {
 public:
  Flattener(const Program& program, const kernels::Table& table, const Sizes& sizes)
      : program_(program),
        table_(table),
        sizes_(sizes),
        angles_(rope_angles(program.rope, program.head_dim)),
        cells_(order_cells(sizes.columns, sizes.rows, program.order, program.window)) {}

  // `out`: null to count. Errors: apply()'s.
  [[nodiscard]] Status walk(float* out, std::vector<FlatOp>* ops);
  [[nodiscard]] size_t n_floats() const { return floats_.size(); }
  [[nodiscard]] const std::vector<Cell>& cells() const { return cells_; }
  [[nodiscard]] const Angles& angles() const { return angles_; }

 private:
  void tables(const Op& op, const Shapes& before, const Shapes& after, FlatOp* flat);
  void angle_rows(int32_t first_half, int32_t n_halves);
  void positions(const Op& op, const Shape& out, FlatOp* flat);
  void cell_rows(const Op& op, const Shape& in, const Shape& out);
  void reaches(const Op& op, int64_t keys);
  void emitted(const Op& op, const Shape& in);

  const Program& program_;
  const kernels::Table& table_;
  const Sizes& sizes_;
  Angles angles_;
  std::vector<Cell> cells_;
  Floats floats_;
  // Operations that rotate share a table, and those that attend to the same keys.
  int64_t rope_at_ = -1;
  int64_t reach_at_[3] = {-1, -1, -1};
};

// The halves of a head's pairs in their order, for every row: cosines, then sines.
void Flattener::angle_rows(int32_t first_half, int32_t n_halves) {
  const AxisAngles axes[] = {axis_angles(program_.rope, program_.head_dim, 0, sizes_.rows),
                             axis_angles(program_.rope, program_.head_dim, 1, sizes_.columns)};
  const auto quarter = static_cast<size_t>(program_.head_dim / 4);
  for (const Cell& cell : cells_) {
    for (const bool sines : {false, true}) {
      for (int32_t half = first_half; half < first_half + n_halves; ++half) {
        const size_t axis = (half == 0) == angles_.row_first ? 0 : 1;
        const std::vector<float>& from = sines ? axes[axis].sin : axes[axis].cos;
        const size_t at = size_t{axis == 0 ? cell.row : cell.column} * quarter;
        for (size_t i = 0; i < quarter; ++i) floats_.put(from[at + i]);
      }
    }
  }
}

void Flattener::positions(const Op& op, const Shape& out, FlatOp* flat) {
  const int64_t table_rows = program_.mat_of(op).rows;
  const auto side = static_cast<uint32_t>(std::sqrt(static_cast<double>(table_rows)) + 0.5);
  flat->taps = 1;
  if (op.positions == Positions::kDirect) {
    for (int64_t row = 0; row < out.rows; ++row) floats_.put(row);
    return;
  }
  if (op.positions == Positions::kColumnAndRow) {
    flat->taps = 2;
    for (const Cell& cell : cells_) floats_.put(cell.column);
    for (const Cell& cell : cells_) floats_.put(table_rows / 2 + cell.row);
    return;
  }
  const AxisTaps down = axis_taps(op.positions, side, out.grid_rows),
                 across = axis_taps(op.positions, side, out.columns);
  const auto most = [](const AxisTaps& axis) {
    uint32_t n = 0;
    for (size_t i = 0; i + 1 < axis.first.size(); ++i) {
      n = std::max(n, axis.first[i + 1] - axis.first[i]);
    }
    return n;
  };
  const uint32_t high = most(down), wide = most(across);
  flat->taps = high * wide;
  flat->weighted = op.positions == Positions::kBuckets ? 0 : 1;
  for (const Cell& cell : cells_) {
    for (uint32_t i = 0; i < high; ++i) {
      for (uint32_t j = 0; j < wide; ++j) {
        const uint32_t y = down.first[cell.row] + i, x = across.first[cell.column] + j;
        const bool there = y < down.first[cell.row + 1u] && x < across.first[cell.column + 1u];
        floats_.put(there ? down.taps[y].index * side + across.taps[x].index : 0u);
        if (flat->weighted != 0) {
          floats_.put(there ? down.taps[y].weight * across.taps[x].weight : 0.0f);
        }
      }
    }
  }
}

// The rows of `in` that become one of `out`, by rows of the square; -1 beyond the grid.
void Flattener::cell_rows(const Op& op, const Shape& in, const Shape& out) {
  const int64_t n = op.n, cells = n * n;
  for (int64_t row = 0; row < out.rows; ++row) {
    const int64_t top = row / out.columns * n, left = row % out.columns * n;
    for (int64_t i = 0; i < cells; ++i) {
      const int64_t down = top + i / n, right = left + i % n;
      const bool inside = down < in.grid_rows && right < in.columns;
      const int64_t from = in.order == Order::kRaster ? down * in.columns + right : row * cells + i;
      floats_.put(inside ? from : int64_t{-1});
    }
  }
}

void Flattener::reaches(const Op& op, int64_t keys) {
  for (const KeyRun& run :
       key_runs(op, keys, {sizes_.columns, sizes_.rows, program_.window}, table_)) {
    for (uint32_t row = run.first; row < run.end; ++row) {
      floats_.put(run.first);
      floats_.put(run.end);
    }
  }
}

// The row of `in` for each row of the output, in raster order; -1 between two rows of the grid.
void Flattener::emitted(const Op& op, const Shape& in) {
  std::vector<size_t> rows(static_cast<size_t>(in.rows));
  for (size_t row = 0; row < rows.size(); ++row) {
    size_t place = row;
    if (in.order == Order::kWindows) {  // tokens are squares of patches
      const Cell cell = cells_[4 * row];
      place = size_t{cell.row / 2u} * in.columns + cell.column / 2u;
    }
    rows[place] = row;
  }
  for (size_t place = 0; place < rows.size(); ++place) {
    if (op.vec3 >= 0 && place > 0 && place % in.columns == 0) floats_.put(-1);
    floats_.put(rows[place]);
  }
}

void Flattener::tables(const Op& op, const Shapes& before, const Shapes& after, FlatOp* flat) {
  const auto in = [&] { return before[static_cast<size_t>(op.in)]; };
  const auto out = [&] { return after[static_cast<size_t>(op.out)]; };
  flat->table = static_cast<int32_t>(floats_.size());
  switch (op.kind) {
    case OpKind::kAddTable:
      return positions(op, out(), flat);
    case OpKind::kRope:
      if (rope_at_ >= 0) {
        flat->table = static_cast<int32_t>(rope_at_);
        return;
      }
      rope_at_ = flat->table;
      if (!angles_.halves) return angle_rows(0, 2);
      angle_rows(0, 1);
      return angle_rows(1, 1);
    case OpKind::kMerge:
    case OpKind::kPool:
      return cell_rows(op, in(), out());
    case OpKind::kAttention:
      if (op.reach == Reach::kAll) break;
      if (int64_t& at = reach_at_[static_cast<size_t>(op.reach)]; at < 0) {
        at = flat->table;
        reaches(op, before[static_cast<size_t>(op.in2)].rows);
      } else {
        flat->table = static_cast<int32_t>(at);
      }
      return;
    case OpKind::kEmit:
      if (in().order != Order::kWindows && op.vec3 < 0) break;
      return emitted(op, in());
    default:
      break;
  }
  flat->table = -1;
}

FlatOp fields_of(const Op& op) {
  FlatOp flat{};
  flat.kind = word(op.kind);
  flat.in = word(op.in);
  flat.in2 = word(op.in2);
  flat.out = word(op.out);
  flat.mat = op.mat;
  flat.vec = op.vec;
  flat.vec2 = op.vec2;
  flat.vec3 = op.vec3;
  flat.in_col = word(op.in_col);
  flat.in2_col = word(op.in2_col);
  flat.out_col = word(op.out_col);
  flat.n = word(op.n);
  flat.groups = word(op.groups);
  flat.skip = word(op.skip);
  flat.norm = word(op.norm);
  flat.act = word(op.act);
  flat.add = op.add ? 1 : 0;
  flat.gated = op.gated ? 1 : 0;
  flat.channels_first = op.channels_first ? 1 : 0;
  flat.value = op.value;
  flat.eps = op.eps;
  return flat;
}

Status Flattener::walk(float* out, std::vector<FlatOp>* ops) {
  floats_.begin(out);
  rope_at_ = -1;
  std::fill(std::begin(reach_at_), std::end(reach_at_), -1);
  Shapes shapes;
  for (const Op& op : program_.ops) {
    const auto shape = [&](Buf b) { return b == Buf::kNone ? Shape{} : shapes[size_t(b)]; };
    if (op.kind == OpKind::kPatches) {
      const int64_t cols = int64_t{3} * op.n * op.n;
      shapes[static_cast<size_t>(op.out)] = {int64_t{sizes_.columns} * sizes_.rows, cols,
                                             sizes_.columns, sizes_.rows, program_.order};
    }
    const Shapes before = shapes;
    SLUICE_RETURN_IF_ERROR(apply(program_, op, &shapes));
    FlatOp flat = fields_of(op);
    const Shape in = op.in == Buf::kNone ? Shape{} : before[static_cast<size_t>(op.in)];
    flat.in_rows = word(in.rows);
    flat.in_cols = word(in.cols);
    flat.columns = in.columns;
    flat.in2_rows = word(before[static_cast<size_t>(op.in2)].rows);
    flat.in2_cols = word(before[static_cast<size_t>(op.in2)].cols);
    flat.rows = word(shape(op.out).rows);
    flat.cols = word(shape(op.out).cols);
    tables(op, before, shapes, &flat);
    if (ops != nullptr) ops->push_back(flat);
  }
  return {};
}

FlatTensor tensor_of(kernels::Type type, int64_t rows, int64_t cols, int64_t row_bytes,
                     uint32_t file, uint64_t offset) {
  return {word(type), word(rows),   word(cols),        word(row_bytes),
          file,       word(offset), word(offset >> 32)};
}

}  // namespace

Result<FlatInput> flatten(const Program& program, const media::Projector& projector,
                          const kernels::Table& table, const media::Image& image, uint64_t budget) {
  FlatInput out;
  Result<Sizes> sizes = sizes_for(program, table, image.width, image.height);
  if (!sizes.ok()) return sizes.status();
  out.sizes = *sizes;
  Flattener flattener(program, table, out.sizes);
  out.ops.reserve(program.ops.size());
  SLUICE_RETURN_IF_ERROR(flattener.walk(nullptr, &out.ops));
  out.neighbours = flattener.angles().neighbours;
  out.halves = flattener.angles().halves;
  const int32_t side = program.ops.front().n;  // kPatches comes first
  const uint64_t values = 3ull * word(side) * word(side);
  out.n_tables = flattener.n_floats();
  out.n_patches = flattener.cells().size() * values;
  const uint64_t lists = program.ops.size() * sizeof(FlatOp) +
                         (program.mats.size() + program.vecs.size()) * sizeof(FlatTensor);
  const uint64_t needed = (out.n_tables + out.n_patches) * sizeof(float) + lists;
  if (needed > budget) {
    return error(Code::kBudgetTooSmall, "describing a picture takes %llu bytes; there are %llu",
                 static_cast<unsigned long long>(needed), static_cast<unsigned long long>(budget));
  }
  SLUICE_RETURN_IF_ERROR(out.tables.allocate(out.n_tables * sizeof(float)));
  SLUICE_RETURN_IF_ERROR(out.patches.allocate(out.n_patches * sizeof(float)));
  SLUICE_RETURN_IF_ERROR(flattener.walk(out.tables.as<float>(), nullptr));
  auto* patch = out.patches.as<float>();
  for (const Cell& cell : flattener.cells()) {
    patch_values({image, projector, program.shifted, side}, cell, patch);
    patch += values;
  }
  out.mats.reserve(program.mats.size());
  for (const Mat& mat : program.mats) {
    out.mats.push_back(
        tensor_of(mat.type, mat.rows, mat.cols, mat.row_bytes, mat.file, mat.offset));
  }
  out.vecs.reserve(program.vecs.size());
  for (const Vec& vec : program.vecs) {
    out.vecs.push_back(
        tensor_of(vec.type, 1, vec.n, static_cast<int64_t>(vec.bytes), vec.file, vec.offset));
  }
  return out;
}

}  // namespace sluice::vision
