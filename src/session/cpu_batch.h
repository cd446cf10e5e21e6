// The batch that the CPU is computing, as operations see it: the model's parts, and the rows and
// positions of one sequence at a time. Operations are free functions over it (ops.h).
#pragma once

#include <algorithm>
#include <vector>

#include "session/execution_context.h"
#include "session/executor.h"

namespace sluice::session {

// The first position that a query sees through its window.
[[nodiscard]] inline int32_t window_begin(const model::AttentionOp& op, int32_t position) {
  if (op.window == 0) return 0;
  if (op.chunked) return position / op.window * op.window;
  return std::max(0, op.att.causal ? position + 1 - op.window : position - op.window / 2);
}
// One past the last position that it sees, in an input of `length` tokens.
[[nodiscard]] inline int32_t window_end(const model::AttentionOp& op, int32_t position,
                                        int32_t length) {
  if (op.att.causal) return position + 1;
  return op.window == 0 ? length : std::min(length, position + op.window / 2 + 1);
}

// One sequence's rows among the current rows.
struct Lane {
  BatchPart part;             // null sequence: dropped, its rows are meaningless
  int32_t row = 0, rows = 0;  // its first row, and how many
  int32_t first = 0;          // position of its first row
  int32_t token = 0;          // index of its first token in the batch
};

// Tokens of one input that one task of attention computes.
struct TextTile {
  int32_t text, length;  // the input's first row, and its tokens
  int32_t first, count;  // the tile's tokens within the input
};

struct CpuBatch : ExecutionContext {
  explicit CpuBatch(const ExecutionContext& context) : ExecutionContext(context) {
    tiles.reserve(static_cast<size_t>(largest_batch));
    tokens.reserve(static_cast<size_t>(largest_batch));
    lanes.reserve(static_cast<size_t>(plan.sessions.parallel));
  }

  BatchSpec spec;
  std::vector<Lane> lanes;
  std::vector<Token> tokens;
  // The current lane, or all rows.
  Sequence* sequence = nullptr;
  int32_t row = 0;    // first row
  int32_t rows = 0;   // current rows (after kSelect only those with wanted logits)
  int32_t first = 0;  // position of the first row
  int32_t token = 0;  // index of its token in the batch
  bool observed = false;
  std::vector<TextTile> tiles;  // of an attention, while it runs

  [[nodiscard]] int32_t n_tokens() const { return static_cast<int32_t>(tokens.size()); }
  [[nodiscard]] bool in_nextn() const { return model::kNextn && spec.nextn != nullptr; }
  [[nodiscard]] bool in_part() const { return kPartialForward && spec.part != nullptr; }

  void enter(const Lane& lane) {
    sequence = lane.part.sequence;
    row = lane.row;
    rows = lane.rows;
    first = lane.first;
    token = lane.token;
  }
  // Calls body() for each sequence of the batch, with the current rows set to its rows.
  template <typename Body>
  void for_lanes(Body&& body) {
    if (lanes.size() == 1) return body();
    const int32_t all = rows;
    for (const Lane& lane : lanes) {
      if (lane.part.sequence == nullptr || lane.rows == 0) continue;
      enter(lane);
      body();
    }
    row = 0;
    rows = all;
  }
  // Calls body(first row, tokens) for each input of the batch.
  template <typename Body>
  void for_texts(Body&& body) const {
    int32_t from = 0;
    for (const int32_t end : spec.ends) {
      body(from, end - from);
      from = end;
    }
  }
  // Runs body(row) for n rows of the batch, on several threads if there are enough.
  template <typename Body>
  void for_rows(int32_t n, Body&& body) const {
    constexpr int32_t kRowsForThreads = 4;  // with fewer, a region costs more than it saves
    if (n < kRowsForThreads || pool.n_threads() == 1) {
      for (int32_t i = 0; i < n; ++i) body(i);
      return;
    }
    pool.parallel_for(n, [&](int64_t i, int) { body(static_cast<int32_t>(i)); });
  }

  [[nodiscard]] float* buffer(model::Buf b) const { return working.buffer(b) + row * width(b); }
  [[nodiscard]] float* row_at(model::Buf b, int64_t col, int32_t t) const {
    return buffer(b) + t * width(b) + col;
  }
  // Columns of the rows from `t` on, `more` after the place; null if there is no place.
  [[nodiscard]] kernels::TokenRows rows_at(const model::Place& place, int64_t more,
                                           int32_t t) const {
    if (place.col < 0) return {};
    return {row_at(place.buf, place.col + more, t), width(place.buf)};
  }
  // The matrix that multiplies the batch's rows in a matmul by `mat`.
  [[nodiscard]] int32_t mat_of(int32_t mat) const {
    const int32_t media = program.mats[static_cast<size_t>(mat)].media;
    return spec.media.rows != nullptr && media >= 0 ? media : mat;
  }
  // The position of row t within its own input.
  [[nodiscard]] int32_t position_of(int32_t t) const {
    if (spec.ends.empty()) return first + t;
    const auto end = std::upper_bound(spec.ends.begin(), spec.ends.end(), t);
    return end == spec.ends.begin() ? t : t - *(end - 1);
  }
  // The first position that a query sees: a decoder's tokens do not attend to the encoder's input.
  [[nodiscard]] int32_t seen_from(const model::AttentionOp& op, int32_t position) const {
    return std::max(sequence->source(), window_begin(op, position));
  }
  // The end of the positions that a query sees: that of its picture, if the picture's tokens see
  // each other in this layer.
  [[nodiscard]] int32_t seen_to(const model::AttentionOp& op, int32_t position) const {
    const bool whole = spec.media.non_causal && (op.window > 0 || program.hp.media.sees_all);
    return whole ? first + rows : position + 1;
  }
  [[nodiscard]] float sink(const model::AttentionOp& op, int32_t head) const {
    return op.sinks >= 0 ? vec(op.sinks)[head] : kernels::kNoSink;
  }
};

}  // namespace sluice::session
