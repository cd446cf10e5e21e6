// Operations that carry state from token to token. Each reads the state before the batch, writes
// the state after it, and on the way the copies for due checkpoints. Work is split by heads and
// channels, which are independent; each task processes all tokens of the batch. So neither threads
// nor the batch size change a bit.
#include <algorithm>

#include "session/ops.h"

namespace sluice::session {

using model::Buf;
using model::Op;

namespace {

constexpr int64_t kTaskColumns = 64;       // a multiple of every target's vector width
constexpr int64_t kWorkForThreads = 8192;  // with less, a parallel region costs more than it saves

// Copies a block of rows, `ld` apart.
void copy_columns(const float* from, int64_t rows, int64_t ld, int64_t columns, float* to) {
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * ld, columns, to + i * ld);
}

template <typename Body>
void for_tasks(CpuBatch& cx, int64_t n_tasks, int64_t work, Body&& body) {
  if (n_tasks == 1 || work < kWorkForThreads || cx.pool.n_threads() == 1) {
    for (int64_t task = 0; task < n_tasks; ++task) body(task);
    return;
  }
  cx.pool.parallel_for(n_tasks, [&](int64_t task, int) { body(task); });
}

// Runs body(first, n, before, after) over the batch in runs of tokens that end at due checkpoints,
// and copies the state there into the checkpoint. The state is `rows` rows of `columns` floats,
// `ld` apart, `at` floats into the layer's state.
template <typename Body>
void through_checkpoints(CpuBatch& cx, const Op& op, int64_t at, int64_t rows, int64_t ld,
                         int64_t columns, Body&& body) {
  const float* before = cx.sequence->state_before(op.layer) + at;
  float* after = cx.sequence->state_after(op.layer) + at;
  int32_t done = 0;
  for (const Sequence::Checkpoint& c : cx.sequence->due()) {
    const int32_t end = c.position - cx.first;
    if (end > done) body(done, end - done, done == 0 ? before : after, after);
    done = end;
    copy_columns(after, rows, ld, columns, cx.sequence->cache().state(op.layer, c.copy) + at);
  }
  if (done < cx.rows) body(done, cx.rows - done, done == 0 ? before : after, after);
}

}  // namespace

// The state is the last taps - 1 inputs of each channel, [taps - 1][n], oldest first.
void op_convolve(CpuBatch& cx, const Op& op) {
  const auto& own = op.as<model::ConvOp>();
  const float* weights = cx.vec(own.weights);
  const float* bias = own.bias >= 0 ? cx.vec(own.bias) : nullptr;
  const int32_t past = static_cast<int32_t>(own.state.size / op.n);
  const int64_t ld = cx.width(op.in);
  float* x = cx.buffer(op.in) + op.in_col;
  const int64_t n_tasks = (op.n + kTaskColumns - 1) / kTaskColumns;
  for_tasks(cx, n_tasks, int64_t{op.n} * (past + 1) * cx.rows, [&](int64_t task) {
    const int64_t c = task * kTaskColumns, n = std::min(kTaskColumns, op.n - c);
    const float* before = cx.sequence->state_before(op.layer) + own.state.at + c;
    const auto keep = [&](int32_t n_tokens, float* to) {
      for (int32_t j = 0; j < past; ++j) {
        const int32_t t = n_tokens - past + j;
        const float* from = t < 0 ? before + int64_t{past + t} * op.n : x + t * ld + c;
        std::copy_n(from, n, to + own.state.at + c + int64_t{j} * op.n);
      }
    };
    for (const Sequence::Checkpoint& due : cx.sequence->due()) {
      keep(due.position - cx.first, cx.sequence->cache().state(op.layer, due.copy));
    }
    keep(cx.rows, cx.sequence->state_after(op.layer));
    kernels::ConvArgs a{};
    a.x = x + c;
    a.ld = ld;
    a.before = before;
    a.ld_before = op.n;
    a.weights = weights + c;
    a.ld_weights = op.n;
    a.bias = bias == nullptr ? nullptr : bias + c;
    a.n_channels = n;
    a.n_taps = past + 1;
    a.n_tokens = cx.rows;
    a.silu = own.unary == model::Unary::kSilu;
    cx.table.convolve(a);
  });
}

// The state is [heads][keys][values].
void op_state(CpuBatch& cx, const Op& op) {
  const auto& own = op.as<model::StateOp>();
  const model::Recurrence& rec = cx.program.recurrences[static_cast<size_t>(own.rec)];
  const float* given = own.given >= 0 ? cx.vec(own.given) : nullptr;
  const int64_t per_head = (rec.values + kTaskColumns - 1) / kTaskColumns;
  const int64_t size = int64_t{rec.keys} * rec.values;
  for_tasks(cx, per_head * rec.heads, rec.heads * size * cx.rows, [&](int64_t task) {
    const int64_t h = task / per_head, c = task % per_head * kTaskColumns;
    const int64_t n = std::min(kTaskColumns, rec.values - c);
    const int64_t group = rec.interleaved ? h % rec.groups : h * rec.groups / rec.heads;
    kernels::StateArgs a{};
    a.kind = rec.kind;
    a.ld = rec.values;
    a.n_keys = rec.keys;
    a.n_columns = static_cast<int32_t>(n);
    a.decay_per_key = rec.decay_per_key;
    if (rec.kind == kernels::StateKind::kBonus) {
      a.bonus = given + h * rec.keys;
    } else if (given != nullptr) {
      a.skip = given[h];
    }
    const int64_t at = own.state.at + h * size + c;
    const auto run = [&](int32_t first, int32_t count, const float* before, float* after) {
      a.before = before;
      a.after = after;
      a.n_tokens = count;
      a.r = cx.rows_at(rec.r, group * rec.keys, first);
      a.k = cx.rows_at(rec.k, group * rec.keys, first);
      a.a = cx.rows_at(rec.a, group * rec.keys, first);
      a.b = cx.rows_at(rec.b, group * rec.keys, first);
      a.v = cx.rows_at(rec.v, h * rec.values + c, first);
      a.decay = cx.rows_at(rec.decay, rec.decay_per_key ? h * rec.keys : h, first);
      a.beta = cx.rows_at(rec.beta, h, first);
      a.out_stride = cx.width(rec.out.buf);
      a.out = cx.row_at(rec.out.buf, rec.out.col + h * rec.values + c, first);
      cx.table.update_state(a);
    };
    through_checkpoints(cx, op, at, rec.keys, rec.values, n, run);
  });
}

// The state is [keys][values]: keys are the scan's states, values its channels.
void op_scan(CpuBatch& cx, const Op& op) {
  const auto& own = op.as<model::ScanOp>();
  const model::Recurrence& rec = cx.program.recurrences[static_cast<size_t>(own.rec)];
  const float *decay = cx.vec(own.rates), *skip = cx.vec(own.skip);
  const int64_t n_tasks = (rec.values + kTaskColumns - 1) / kTaskColumns;
  for_tasks(cx, n_tasks, int64_t{rec.keys} * rec.values * cx.rows, [&](int64_t task) {
    const int64_t c = task * kTaskColumns, n = std::min(kTaskColumns, rec.values - c);
    kernels::ScanArgs a{};
    a.ld = a.ld_a = rec.values;
    a.n_state = rec.keys;
    a.n_columns = static_cast<int32_t>(n);
    a.a = decay + c;
    a.d = skip + c;
    const auto run = [&](int32_t first, int32_t count, const float* before, float* after) {
      a.before = before;
      a.after = after;
      a.n_tokens = count;
      a.dt = cx.rows_at(rec.decay, c, first);
      a.x = cx.rows_at(rec.v, c, first);
      a.b = cx.rows_at(rec.k, 0, first);
      a.c = cx.rows_at(rec.r, 0, first);
      a.out_stride = cx.width(rec.out.buf);
      a.out = cx.row_at(rec.out.buf, rec.out.col + c, first);
      cx.table.scan(a);
    };
    through_checkpoints(cx, op, own.state.at + c, rec.keys, rec.values, n, run);
  });
}

// The state is the last row, [n].
void op_shift(CpuBatch& cx, const Op& op) {
  const int64_t at = op.as<model::ShiftOp>().state.at;
  const auto row = [&](int32_t t) -> const float* {
    return t < 0 ? cx.sequence->state_before(op.layer) + at
                 : cx.buffer(op.in) + t * cx.width(op.in) + op.in_col;
  };
  cx.for_rows(cx.rows, [&](int32_t t) {
    const float *x = row(t), *former = row(t - 1);
    float* out = cx.buffer(op.out) + t * cx.width(op.out) + op.out_col;
    for (int32_t i = 0; i < op.n; ++i) out[i] = former[i] - x[i];
  });
  for (const Sequence::Checkpoint& c : cx.sequence->due()) {
    std::copy_n(row(c.position - cx.first - 1), op.n,
                cx.sequence->cache().state(op.layer, c.copy) + at);
  }
  std::copy_n(row(cx.rows - 1), op.n, cx.sequence->state_after(op.layer) + at);
}

}  // namespace sluice::session
