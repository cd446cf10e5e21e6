// Operations within one token that the kernels do not have: copies between columns, AltUp streams,
// gates thresholded at a multiple of their standard deviation. Sums are in double.
#include <algorithm>
#include <array>
#include <cmath>

#include "session/ops.h"

namespace sluice::session {

using model::Buf;
using model::Op;
using model::OpKind;

namespace {

double square_sum(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

void copy_groups(const Op& op, const float* in, float* out) {
  const auto& own = op.as<model::CopyOp>();
  for (int32_t h = 0; h < own.heads; ++h, in += own.in_step, out += own.out_step) {
    std::copy_n(in, op.n, out);
  }
}

void match_norm(const Op& op, const float* in, float* out) {
  const double wanted = square_sum(in, op.n);
  const int32_t heads = op.as<model::MatchNormOp>().heads;
  for (int32_t h = 0; h < heads; ++h, out += op.n) {
    const double own = square_sum(out, op.n);
    const float factor = own > 0 ? static_cast<float>(std::sqrt(wanted / own)) : 0;
    for (int32_t i = 0; i < op.n; ++i) out[i] *= factor;
  }
}

// Mixes streams in blocks, because each output depends on all inputs.
void mix_streams(const Op& op, const float* weights, float* streams) {
  constexpr int32_t kBlock = 64;
  const int32_t count = op.as<model::MixStreamsOp>().streams;
  std::array<float, model::kMaxStreams * kBlock> mixed;
  for (int32_t from = 0; from < op.n; from += kBlock) {
    const int32_t n = std::min(kBlock, op.n - from);
    float* x = streams + from;
    for (int32_t j = 0; j < count; ++j) {
      float* y = &mixed[static_cast<size_t>(j * kBlock)];
      std::copy_n(x + int64_t{j} * op.n, n, y);
      for (int32_t i = 0; i < count; ++i) {
        const float w = weights[j * count + i];
        const float* in = x + int64_t{i} * op.n;
        for (int32_t k = 0; k < n; ++k) y[k] += w * in[k];
      }
    }
    for (int32_t j = 0; j < count; ++j) {
      std::copy_n(&mixed[static_cast<size_t>(j * kBlock)], n, x + int64_t{j} * op.n);
    }
  }
}

void correct_streams(const Op& op, const float* weights, const float* in, float* streams) {
  const auto correct = [&](int32_t j, const float* active) {
    float* y = streams + int64_t{j} * op.n;
    const float w = 1 + weights[j];
    for (int32_t i = 0; i < op.n; ++i) y[i] += w * (in[i] - active[i]);
  };
  const int32_t active = op.out_col / op.n, count = op.as<model::CorrectStreamsOp>().streams;
  for (int32_t j = 0; j < count; ++j) {
    if (j != active) correct(j, streams + op.out_col);
  }
  correct(active, streams + op.out_col);  // last: the others read its old value
}

void sparsify(const Op& op, float* x) {
  const double times = static_cast<double>(op.as<model::SparsifyOp>().deviations);
  double mean = 0, squares = 0;
  for (int32_t i = 0; i < op.n; ++i) mean += x[i];
  mean /= op.n;
  for (int32_t i = 0; i < op.n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double deviation = std::sqrt(squares / std::max(1, op.n - 1));
  const float cut = static_cast<float>(mean + times * deviation);
  for (int32_t i = 0; i < op.n; ++i) x[i] = std::max(0.0f, x[i] - cut);
}

}  // namespace

void op_vectors(CpuBatch& cx, const Op& op) {
  const float* vec = nullptr;
  bool one = false;
  if (const auto* own = op.get<model::MulVecOp>()) {
    vec = cx.vec(own->by);
    one = cx.program.vecs[static_cast<size_t>(own->by)].n == 1;
  }
  cx.for_rows(cx.rows, [&](int32_t t) {
    const float* in = cx.buffer(op.in) + t * cx.width(op.in) + op.in_col;
    float* out = cx.buffer(op.out) + t * cx.width(op.out);
    const float* weights = cx.buffer(Buf::kRouter) + t * cx.width(Buf::kRouter) + op.in_col;
    switch (op.kind()) {
      case OpKind::kCopy:
        copy_groups(op, in, out + op.out_col);
        break;
      case OpKind::kMulVec:
        for (int32_t i = 0; i < op.n; ++i) out[op.out_col + i] = in[i] * vec[one ? 0 : i];
        break;
      case OpKind::kMixStreams:
        mix_streams(op, weights, out);
        break;
      case OpKind::kCorrectStreams:
        correct_streams(op, weights, in - op.in_col, out);
        break;
      case OpKind::kMatchNorm:
        match_norm(op, in, out + op.out_col);
        break;
      default:
        sparsify(op, out + op.out_col);
        break;
    }
  });
}

// Scales queries by position. Positions count from 1 if the offset is 1; the quotient is rounded
// down.
void op_temperature(CpuBatch& cx, const Op& op) {
  const model::HParams& hp = cx.program.hp;
  cx.for_rows(cx.rows, [&](int32_t t) {
    float* q = cx.buffer(op.in) + t * cx.width(op.in);
    const int64_t steps = (cx.position_of(t) + hp.temperature.offset) / hp.temperature.length;
    const double grown = hp.temperature.scale * std::log(1 + static_cast<double>(steps));
    const float by = static_cast<float>(1 + grown);
    std::for_each(q, q + op.n, [by](float& x) { x *= by; });
  });
}

}  // namespace sluice::session
