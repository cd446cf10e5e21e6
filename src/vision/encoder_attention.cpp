// Attention without a mask: each row sees all rows, its window or its square. A head's scores and
// results are matrix multiplications with its keys and its transposed values, in f32, so a row's
// result does not depend on which rows are computed together.
#include <algorithm>
#include <cstring>

#include "vision/encoder.h"

namespace sluice::vision {

// Queries in runs of at most kQueryTile that see the same keys.
void Encoder::divide_queries(const Op& op) {
  tiles_.clear();
  const auto add = [this](uint32_t begin, uint32_t end, uint32_t first_key, uint32_t end_key) {
    for (uint32_t row = begin; row < end; row += kQueryTile) {
      tiles_.push_back({row, std::min<uint32_t>(row + kQueryTile, end), first_key, end_key});
    }
  };
  const auto queries = static_cast<uint32_t>(shape(op.in).rows);
  const auto keys = static_cast<uint32_t>(shape(op.in2).rows);
  if (op.reach == Reach::kAll) return add(0, queries, 0, keys);
  uint32_t begin = 0;
  if (op.reach == Reach::kSquare) {
    for (; begin < queries; begin += 4) add(begin, begin + 4, begin, begin + 4);
    return;
  }
  const Sizes& sizes = plan_.sizes;
  for (const uint32_t end : window_ends(sizes.columns, sizes.rows, program_.window)) {
    add(begin, end, begin, end);
    begin = end;
  }
}

// Keys as [rows][n]; values of each run of keys that are seen together as [n][rows].
void Encoder::gather_head(const Op& op, int32_t head) {
  const Shape& from = shape(op.in2);
  const int64_t n = op.n, heads = op.groups;
  const auto value_of = [&](int64_t row) {
    return at(op.in2) + row * from.cols + op.in2_col + (heads + head) * n;
  };
  for_rows(from.rows, [&](int64_t row) {
    std::memcpy(keys_.as<float>() + row * n, value_of(row) - heads * n,
                static_cast<size_t>(n) * sizeof(float));
  });
  uint32_t done = 0;
  for (const Tile& tile : tiles_) {
    if (tile.end_key <= done) continue;
    done = tile.end_key;
    const int64_t first = tile.first_key, rows = int64_t{tile.end_key} - first;
    float* out = values_.as<float>() + first * n;
    for_rows(n, [&](int64_t i) {
      for (int64_t row = 0; row < rows; ++row) out[i * rows + row] = value_of(first + row)[i];
    });
  }
}

bool Encoder::attention(const Op& op) {
  if (part_ == 0) {
    status_ = apply(program_, op, &shapes_);
    if (!status_.ok()) return false;
    divide_queries(op);
  }
  const auto head = static_cast<int32_t>(part_);
  gather_head(op, head);
  const Shape &in = shape(op.in), &out = shape(op.out);
  options_.pool->parallel_for(static_cast<int64_t>(tiles_.size()), [&](int64_t task, int thread) {
    const Tile& tile = tiles_[static_cast<size_t>(task)];
    const int64_t keys = int64_t{tile.end_key} - tile.first_key;
    const auto rows = static_cast<int32_t>(tile.end - tile.begin);
    auto* scores = reinterpret_cast<float*>(scratch(thread));
    const auto floats = static_cast<uint64_t>(kQueryTile * keys);
    uint8_t* const rest = scratch(thread) + round_up_to_line(floats * sizeof(float));
    kernels::MatmulArgs args{};
    args.w = {kernels::Type::kF32, false, keys, op.n,
              keys_.as<float>() + int64_t{tile.first_key} * op.n};
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
    args.w = {kernels::Type::kF32, false, op.n, keys,
              values_.as<float>() + int64_t{tile.first_key} * op.n};
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
