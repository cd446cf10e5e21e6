// Attention without a mask: each row sees all rows, its window or its square. A head's keys and
// transposed values are packed once. Its scores and results are matrix multiplications with them,
// in f32, so a row's result does not depend on which rows are computed together.
#include <algorithm>
#include <cstring>

#include "vision/encoder.h"

namespace sluice::vision {

// Queries in tiles of at most kQueryTile that see the same run of keys. With kAll there is one run,
// and a resampler has other queries than keys.
void Encoder::divide_queries(const Op& op) {
  const auto queries = static_cast<uint32_t>(shape(op.in).rows);
  const RunGrid grid{plan_.sizes.columns, plan_.sizes.rows, program_.window};
  key_runs_ = key_runs(op, shape(op.in2).rows, grid, *table_);
  tiles_.clear();
  for (uint32_t run = 0; run < key_runs_.size(); ++run) {
    const bool all = op.reach == Reach::kAll;
    const uint32_t first = all ? 0 : key_runs_[run].first, end = all ? queries : key_runs_[run].end;
    for (uint32_t row = first; row < end; row += kQueryTile) {
      tiles_.push_back({row, std::min<uint32_t>(row + kQueryTile, end), run});
    }
  }
}

// Packs every `parts`-th group of a run's keys, [rows][n], and of its values, [n][rows]. `aside`:
// a group in file layout.
void Encoder::pack_run(const Op& op, const KeyRun& run, int64_t part, int64_t parts, float* aside,
                       int32_t head) {
  const Shape& from = shape(op.in2);
  const int64_t n = op.n, rows = int64_t{run.end} - run.first, group = table_->row_group;
  const float* const keys = at(op.in2) + run.first * from.cols + op.in2_col + int64_t{head} * n;
  const float* const values = keys + int64_t{op.groups} * n;
  const auto pack = [&](int64_t row, int64_t count, int64_t cols, uint8_t* to) {
    const size_t bytes = table_->packed_group_bytes(kernels::Type::kF32, cols);
    table_->pack_group(kernels::Type::kF32, aside, static_cast<int32_t>(count), cols,
                       to + static_cast<size_t>(row / group) * bytes);
  };
  for (int64_t row = part * group; row < rows; row += parts * group) {
    const int64_t count = std::min(group, rows - row);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(aside + i * n, keys + (row + i) * from.cols,
                  static_cast<size_t>(n) * sizeof(float));
    }
    pack(row, count, n, keys_.as<uint8_t>() + run.keys_at);
  }
  for (int64_t row = part * group; row < n; row += parts * group) {
    const int64_t count = std::min(group, n - row);
    for (int64_t i = 0; i < rows; ++i) {
      const float* const x = values + i * from.cols + row;
      for (int64_t r = 0; r < count; ++r) aside[r * rows + i] = x[r];
    }
    pack(row, count, rows, values_.as<uint8_t>() + run.values_at);
  }
}

void Encoder::pack_head(const Op& op, int32_t head) {
  constexpr int64_t kPartsOfOne = 16;
  const auto runs = static_cast<int64_t>(key_runs_.size());
  const int64_t parts = runs == 1 ? kPartsOfOne : 1;
  options_.pool->parallel_for(runs * parts, [&](int64_t task, int thread) {
    pack_run(op, key_runs_[static_cast<size_t>(task / parts)], task % parts, parts,
             reinterpret_cast<float*>(scratch(thread)), head);
  });
}

bool Encoder::attention(const Op& op) {
  if (part_ == 0) {
    status_ = apply(program_, op, &shapes_);
    if (!status_.ok()) return false;
    divide_queries(op);
  }
  const auto head = static_cast<int32_t>(part_);
  pack_head(op, head);
  const Shape &in = shape(op.in), &out = shape(op.out);
  options_.pool->parallel_for(static_cast<int64_t>(tiles_.size()), [&](int64_t task, int thread) {
    const QueryTile& tile = tiles_[static_cast<size_t>(task)];
    const KeyRun& run = key_runs_[tile.run];
    const int64_t keys = int64_t{run.end} - run.first;
    const auto rows = static_cast<int32_t>(tile.end - tile.begin);
    auto* scores = reinterpret_cast<float*>(scratch(thread));
    const auto floats = static_cast<uint64_t>(kQueryTile * keys);
    uint8_t* const rest = scratch(thread) + round_up_to_line(floats * sizeof(float));
    kernels::MatmulArgs args{};
    args.w = {kernels::Type::kF32, true, keys, op.n, keys_.as<uint8_t>() + run.keys_at};
    args.r1 = keys;
    args.x.f32 = at(op.in) + tile.begin * in.cols + op.in_col + int64_t{head} * op.n;
    args.x.ld = in.cols;
    args.x.n_tokens = rows;
    args.scale = op.value;
    args.y = scores;
    args.ldy = keys;
    args.scratch = rest;
    table_->matmul(args);
    for (int32_t row = 0; row < rows; ++row) {
      table_->softmax(scores + row * keys, keys, scores + row * keys);
    }
    args.w = {kernels::Type::kF32, true, op.n, keys, values_.as<uint8_t>() + run.values_at};
    args.r1 = op.n;
    args.x.f32 = scores;
    args.x.ld = keys;
    args.scale = 1;
    args.y = at(op.out) + tile.begin * out.cols + int64_t{head} * op.n;
    args.ldy = out.cols;
    table_->matmul(args);
  });
  return ++part_ == static_cast<uint32_t>(op.groups);
}

}  // namespace sluice::vision
