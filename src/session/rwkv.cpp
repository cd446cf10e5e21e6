// Parts of RWKV 7's time mixing (https://arxiv.org/abs/2503.14456, section 4.1) that no other
// family has. They work on the buffers of its recurrence.
#include <algorithm>

#include "session/ops.h"

namespace sluice::session {

using model::Op;

// Replaces the keys k and the learning rates a by the negative removal keys,
// -kappa = -l2norm(k * removal), the replacement keys k * (1 + (a - 1) * replacement), and
// kappa * a. The recurrence's a, k and b say where each is.
void op_rwkv7_keys(CpuBatch& cx, const Op& op) {
  const auto& own = op.as<model::Rwkv7KeysOp>();
  const model::Recurrence& rec = cx.program.recurrences[static_cast<size_t>(own.rec)];
  const float *removal = cx.vec(own.removal), *mix = cx.vec(own.replacement);
  cx.for_rows(cx.rows, [&](int32_t t) {
    float* k = cx.row_at(rec.k.buf, rec.k.col, t);
    float* negative = cx.row_at(rec.a.buf, rec.a.col, t);
    float* both = cx.row_at(rec.b.buf, rec.b.col, t);
    const float* rate = cx.row_at(own.rates.buf, own.rates.col, t);
    for (int32_t i = 0; i < op.n; ++i) negative[i] = k[i] * removal[i];
    for (int32_t h = 0; h < rec.heads; ++h) {
      float* head = negative + int64_t{h} * rec.keys;
      cx.table.l2_norm(head, -1, own.eps, rec.keys, head);
    }
    for (int32_t i = 0; i < op.n; ++i) {
      both[i] = -negative[i] * rate[i];
      k[i] *= 1 + (rate[i] - 1) * mix[i];
    }
  });
}

// out += gate * (in - out): mixes in the first layer's values.
void op_rwkv7_mix(CpuBatch& cx, const Op& op) {
  const model::Place by = op.as<model::Rwkv7MixOp>().gate;
  cx.for_rows(cx.rows, [&](int32_t t) {
    const float *in = cx.row_at(op.in, op.in_col, t), *gate = cx.row_at(by.buf, by.col, t);
    float* out = cx.row_at(op.out, op.out_col, t);
    for (int32_t i = 0; i < op.n; ++i) out[i] += gate[i] * (in[i] - out[i]);
  });
}

// out += v * sum(r * k * weights), head by head.
void op_rwkv7_bonus(CpuBatch& cx, const Op& op) {
  const auto& own = op.as<model::Rwkv7BonusOp>();
  const model::Recurrence& rec = cx.program.recurrences[static_cast<size_t>(own.rec)];
  cx.for_rows(cx.rows, [&](int32_t t) {
    const float *r = cx.row_at(rec.r.buf, rec.r.col, t), *k = cx.row_at(rec.k.buf, rec.k.col, t);
    const float *v = cx.row_at(rec.v.buf, rec.v.col, t), *weight = cx.vec(own.weights);
    float* out = cx.row_at(op.out, op.out_col, t);
    for (int32_t h = 0; h < rec.heads; ++h) {
      float sum = 0;
      for (int32_t i = 0; i < rec.keys; ++i) sum += r[i] * k[i] * weight[i];
      for (int32_t i = 0; i < rec.values; ++i) out[i] += sum * v[i];
      r += rec.keys;
      k += rec.keys;
      weight += rec.keys;
      v += rec.values;
      out += rec.values;
    }
  });
}

}  // namespace sluice::session
