// Operations around a recurrence: functions of single values, gates, decays, and token shift
// (mixing a token with the previous one). Rows are independent and spread over the thread pool.
#include <algorithm>

#include "session/ops.h"

namespace sluice::session {

using model::Op;
using model::Unary;

namespace {

constexpr float kInverseRootE = 0.60653066f;  // e^-1/2: RWKV 7's slowest decay is exp(-e^-1/2)

void apply(const kernels::Table& k, Unary unary, const float* x, int64_t n, float* out) {
  switch (unary) {
    case Unary::kNone:
      if (x != out) std::copy_n(x, n, out);
      return;
    case Unary::kSilu:
      return k.silu(x, n, out);
    case Unary::kSigmoid:
      return k.sigmoid(x, n, out);
    case Unary::kTanh:
      return k.tanh(x, n, out);
    case Unary::kSoftplus:
      return k.softplus(x, n, out);
    case Unary::kReluSquared:
      for (int64_t i = 0; i < n; ++i) {
        const float positive = std::max(x[i], 0.0f);
        out[i] = positive * positive;
      }
      return;
    case Unary::kExpNegExp:
      k.exp(x, n, out);
      k.scale(out, -1, n, out);
      return k.exp(out, n, out);
    case Unary::kExpNegSigmoid:
      k.sigmoid(x, n, out);
      k.scale(out, -kInverseRootE, n, out);
      return k.exp(out, n, out);
  }
}

}  // namespace

void op_unary(CpuBatch& cx, const Op& op) {
  const Unary unary = op.as<model::UnaryOp>().unary;
  cx.for_rows(cx.rows, [&](int32_t t) {
    apply(cx.table, unary, cx.row_at(op.in, op.in_col, t), op.n, cx.row_at(op.out, op.out_col, t));
  });
}

// Turns gates into multipliers, in place.
void op_gated(CpuBatch& cx, const Op& op) {
  const auto& own = op.as<model::GatedOp>();
  cx.for_rows(cx.rows, [&](int32_t t) {
    float* gate = cx.row_at(own.gate.buf, own.gate.col, t);
    const float* in = cx.row_at(op.in, op.in_col, t);
    float* out = cx.row_at(op.out, op.out_col, t);
    for (int32_t h = 0; h < own.heads; ++h, gate += own.stride, in += op.n, out += op.n) {
      apply(cx.table, own.unary, gate, op.n, gate);
      for (int32_t i = 0; i < op.n; ++i) out[i] = in[i] * gate[i];
    }
  });
}

void op_decay(CpuBatch& cx, const Op& op) {
  const kernels::Table& k = cx.table;
  const auto& own = op.as<model::DecayOp>();
  const float *bias = cx.vec(own.bias), *rate = cx.vec(own.rates);
  const int32_t per_head = op.n / own.heads;
  cx.for_rows(cx.rows, [&](int32_t t) {
    float* in = cx.row_at(op.in, op.in_col, t);
    float* out = cx.row_at(op.out, op.out_col, t);
    k.add(in, bias, op.n, in);
    k.softplus(in, op.n, in);
    for (int32_t i = 0; i < op.n; ++i) out[i] = in[i] * rate[i / per_head];
    k.exp(out, op.n, out);
  });
}

void op_lerp(CpuBatch& cx, const Op& op) {
  const auto& own = op.as<model::LerpOp>();
  const float* weight = cx.vec(own.weights);
  cx.for_rows(cx.rows, [&](int32_t t) {
    const float *x = cx.row_at(op.in, op.in_col, t),
                *step = cx.row_at(own.step.buf, own.step.col, t);
    float* out = cx.row_at(op.out, op.out_col, t);
    const float* w = weight;
    for (int32_t r = 0; r < own.rows; ++r, out += op.n, w += op.n) {
      for (int32_t i = 0; i < op.n; ++i) {
        out[i] = x[i] + step[i] * (own.add ? w[i] + out[i] : w[i]);
      }
    }
  });
}

}  // namespace sluice::session
