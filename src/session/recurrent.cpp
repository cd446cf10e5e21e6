// Operations that carry state from token to token. Each reads the state before the batch, writes
// the state after it, and on the way the copies for due checkpoints. Work is split by heads and
// channels, which are independent; each task processes all tokens of the batch. So neither threads
// nor the batch size change a bit.
#include <algorithm>

#include "session/cpu_executor.h"

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

}  // namespace

template <typename Body>
void CpuExecutor::for_tasks(int64_t n_tasks, int64_t work, Body&& body) {
  if (n_tasks == 1 || work < kWorkForThreads || engine_.pool().n_threads() == 1) {
    for (int64_t task = 0; task < n_tasks; ++task) body(task);
    return;
  }
  engine_.pool().parallel_for(n_tasks, [&](int64_t task, int) { body(task); });
}

kernels::TokenRows CpuExecutor::rows_at(const model::Place& place, int64_t more,
                                        int32_t first) const {
  if (place.col < 0) return {};
  return {row_at(place.buf, place.col + more, first), engine_.width(place.buf)};
}

// Runs body(first, n, before, after) over the batch in runs of tokens that end at due checkpoints,
// and copies the state there into the checkpoint. The state is `rows` rows of `columns` floats,
// `ld` apart, `at` floats into the layer's state.
template <typename Body>
void CpuExecutor::through_checkpoints(const Op& op, int64_t at, int64_t rows, int64_t ld,
                                      int64_t columns, Body&& body) {
  const float* before = sequence_->state_before(op.layer) + at;
  float* after = sequence_->state_after(op.layer) + at;
  int32_t done = 0;
  for (const Sequence::Checkpoint& c : sequence_->due()) {
    const int32_t end = c.position - first_;
    if (end > done) body(done, end - done, done == 0 ? before : after, after);
    done = end;
    copy_columns(after, rows, ld, columns, sequence_->cache().state(op.layer, c.copy) + at);
  }
  if (done < rows_) body(done, rows_ - done, done == 0 ? before : after, after);
}

// The state is the last taps - 1 inputs of each channel, [taps - 1][n], oldest first.
void CpuExecutor::op_convolve(const Op& op) {
  const auto& own = op.as<model::ConvOp>();
  const float* weights = engine_.vec(own.weights);
  const float* bias = own.bias >= 0 ? engine_.vec(own.bias) : nullptr;
  const int32_t past = static_cast<int32_t>(own.state.size / op.n);
  const int64_t ld = engine_.width(op.in);
  float* x = buffer(op.in) + op.in_col;
  const int64_t n_tasks = (op.n + kTaskColumns - 1) / kTaskColumns;
  for_tasks(n_tasks, int64_t{op.n} * (past + 1) * rows_, [&](int64_t task) {
    const int64_t c = task * kTaskColumns, n = std::min(kTaskColumns, op.n - c);
    const float* before = sequence_->state_before(op.layer) + own.state.at + c;
    const auto keep = [&](int32_t n_tokens, float* to) {
      for (int32_t j = 0; j < past; ++j) {
        const int32_t t = n_tokens - past + j;
        const float* from = t < 0 ? before + int64_t{past + t} * op.n : x + t * ld + c;
        std::copy_n(from, n, to + own.state.at + c + int64_t{j} * op.n);
      }
    };
    for (const Sequence::Checkpoint& due : sequence_->due()) {
      keep(due.position - first_, sequence_->cache().state(op.layer, due.copy));
    }
    keep(rows_, sequence_->state_after(op.layer));
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
    a.n_tokens = rows_;
    a.silu = own.unary == model::Unary::kSilu;
    engine_.table().convolve(a);
  });
}

// The state is [heads][keys][values].
void CpuExecutor::op_state(const Op& op) {
  const auto& own = op.as<model::StateOp>();
  const model::Recurrence& rec = engine_.program().recurrences[static_cast<size_t>(own.rec)];
  const float* given = own.given >= 0 ? engine_.vec(own.given) : nullptr;
  const int64_t per_head = (rec.values + kTaskColumns - 1) / kTaskColumns;
  const int64_t size = int64_t{rec.keys} * rec.values;
  for_tasks(per_head * rec.heads, rec.heads * size * rows_, [&](int64_t task) {
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
      a.r = rows_at(rec.r, group * rec.keys, first);
      a.k = rows_at(rec.k, group * rec.keys, first);
      a.a = rows_at(rec.a, group * rec.keys, first);
      a.b = rows_at(rec.b, group * rec.keys, first);
      a.v = rows_at(rec.v, h * rec.values + c, first);
      a.decay = rows_at(rec.decay, rec.decay_per_key ? h * rec.keys : h, first);
      a.beta = rows_at(rec.beta, h, first);
      a.out_stride = engine_.width(rec.out.buf);
      a.out = row_at(rec.out.buf, rec.out.col + h * rec.values + c, first);
      engine_.table().update_state(a);
    };
    through_checkpoints(op, at, rec.keys, rec.values, n, run);
  });
}

// The state is [keys][values]: keys are the scan's states, values its channels.
void CpuExecutor::op_scan(const Op& op) {
  const auto& own = op.as<model::ScanOp>();
  const model::Recurrence& rec = engine_.program().recurrences[static_cast<size_t>(own.rec)];
  const float *decay = engine_.vec(own.rates), *skip = engine_.vec(own.skip);
  const int64_t n_tasks = (rec.values + kTaskColumns - 1) / kTaskColumns;
  for_tasks(n_tasks, int64_t{rec.keys} * rec.values * rows_, [&](int64_t task) {
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
      a.dt = rows_at(rec.decay, c, first);
      a.x = rows_at(rec.v, c, first);
      a.b = rows_at(rec.k, 0, first);
      a.c = rows_at(rec.r, 0, first);
      a.out_stride = engine_.width(rec.out.buf);
      a.out = row_at(rec.out.buf, rec.out.col + c, first);
      engine_.table().scan(a);
    };
    through_checkpoints(op, own.state.at + c, rec.keys, rec.values, n, run);
  });
}

// The state is the last row, [n].
void CpuExecutor::op_shift(const Op& op) {
  const int64_t at = op.as<model::ShiftOp>().state.at;
  const auto row = [&](int32_t t) -> const float* {
    return t < 0 ? sequence_->state_before(op.layer) + at
                 : buffer(op.in) + t * engine_.width(op.in) + op.in_col;
  };
  for_rows(rows_, [&](int32_t t) {
    const float *x = row(t), *former = row(t - 1);
    float* out = buffer(op.out) + t * engine_.width(op.out) + op.out_col;
    for (int32_t i = 0; i < op.n; ++i) out[i] = former[i] - x[i];
  });
  for (const Sequence::Checkpoint& c : sequence_->due()) {
    std::copy_n(row(c.position - first_ - 1), op.n,
                sequence_->cache().state(op.layer, c.copy) + at);
  }
  std::copy_n(row(rows_ - 1), op.n, sequence_->state_after(op.layer) + at);
}

}  // namespace sluice::session
