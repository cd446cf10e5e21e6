// Mixture of experts (https://arxiv.org/abs/2401.04088): only the weights of chosen experts
// (moe_router.h) are requested. Experts run in ascending order whatever the number of tokens, so
// sums do not depend on batching.
#include <algorithm>

#include "session/moe_router.h"
#include "session/ops.h"
#include "session/weight_ops.h"

namespace sluice::session {

using model::Buf;
using model::Op;

namespace {

const model::Moe& mixture_of(const model::Program& p, const Op& op) {
  return p.moes[static_cast<size_t>(op.as<model::MoeOp>().moe)];
}

// Chooses each row's experts and groups the rows by expert. Returns the number of experts.
int32_t route(CpuBatch& cx, const model::Moe& moe, const RoutingHook& hook) {
  const float* bias = moe.choice_bias >= 0 ? cx.vec(moe.choice_bias) : nullptr;
  Choice* choices = cx.working.choices();
  cx.for_rows(cx.rows, [&](int32_t t) {
    float* logits = cx.buffer(Buf::kRouter) + t * cx.width(Buf::kRouter);
    choose_experts(moe, cx.table, logits, bias, logits + moe.n_expert,
                   choices + static_cast<int64_t>(t) * moe.n_used);
  });
  if constexpr (kRoutingHook) {
    const auto mixture = static_cast<int32_t>(&moe - cx.program.moes.data());
    if (hook.routed != nullptr) {
      hook.routed(hook.context, mixture, cx.rows, moe.n_used, choices);
    }
  }
  return group_by_expert(choices, cx.rows, moe.n_used, static_cast<int32_t>(moe.up.size()),
                         cx.working.routed(), cx.working.expert_runs());
}

// Gathers the inputs of the expert's tokens, [count][n].
void gather_tokens(CpuBatch& cx, const Op& op, const ExpertRun& run, float* to) {
  const model::Moe& moe = mixture_of(cx.program, op);
  for (int32_t i = 0; i < run.count; ++i) {
    const Routed& routed = cx.working.routed()[run.first + i];
    const float* x = cx.buffer(op.in) + routed.token * cx.width(op.in);
    float* y = to + static_cast<int64_t>(i) * op.n;
    if (moe.weigh_input) {
      cx.table.scale(x, routed.weight, op.n, y);
    } else {
      std::copy(x, x + op.n, y);
    }
  }
}

void scatter_tokens(CpuBatch& cx, const Op& op, const ExpertRun& run, const float* from) {
  const model::Moe& moe = mixture_of(cx.program, op);
  const float scale = op.as<model::MoeOp>().scale;
  for (int32_t i = 0; i < run.count; ++i) {
    const Routed& routed = cx.working.routed()[run.first + i];
    float* y = cx.buffer(op.out) + routed.token * cx.width(op.out);
    const float* x = from + static_cast<int64_t>(i) * op.n;
    const float weight = moe.weigh_input ? scale : scale * routed.weight;
    for (int32_t j = 0; j < op.n; ++j) y[j] += weight * x[j];
  }
}

// Phases of one expert: 0 gather, 1 gate and up, 2 activate, 3 down, 4 add to the output.
bool run_expert(WeightBatch& cx, const Op& op, const ExpertRun& run) {
  const model::Moe& moe = mixture_of(cx.program, op);
  const int32_t n = op.n;
  float* in = cx.working.experts();
  float* out = in + static_cast<int64_t>(cx.plan.batch.n_batch) * n;
  const size_t e = static_cast<size_t>(run.expert);
  const int64_t ld_gu = cx.width(Buf::kGateUp);
  float* gu = cx.buffer(Buf::kGateUp);
  const auto product = [&](int32_t mat, int32_t bias, int32_t scale, const float* x, int64_t ld,
                           float* y, int64_t ldy) {
    Product p;
    p.mat = mat;
    p.bias = bias;
    p.bias_at = run.expert * cx.program.mats[static_cast<size_t>(mat)].rows;
    p.acts = {x, ld, cx.working.q8(), run.count};
    p.y = y;
    p.ldy = ldy;
    if (scale >= 0) p.factor = cx.vec(scale)[e];
    cx.products.push_back(p);
  };
  const auto next_phase = [&cx] {
    ++cx.phase;
    cx.stream.restart();
  };
  const bool gated = !moe.gate.empty();
  if (cx.phase == 0) {
    gather_tokens(cx, op, run, in);
    if ((gated && wants_q8(cx, moe.gate[e])) || wants_q8(cx, moe.up[e])) {
      quantize(cx, in, n, n, run.count, cx.working.q8());
    }
    next_phase();
  }
  if (cx.phase == 1) {
    cx.products.clear();
    if (gated) product(moe.gate[e], moe.gate_bias, moe.gate_scale, in, n, gu, ld_gu);
    float* up = gated ? gu + moe.n_ff : gu;
    product(moe.up[e], moe.up_bias, moe.up_scale, in, n, up, ld_gu);
    if (!run_products(cx)) return false;
    next_phase();
  }
  if (cx.phase == 2) {
    cx.for_rows(run.count, [&](int32_t i) { activate(cx, moe.act, gu + i * ld_gu, moe.n_ff); });
    if (wants_q8(cx, moe.down[e])) quantize(cx, gu, ld_gu, moe.n_ff, run.count, cx.working.q8());
    next_phase();
  }
  if (cx.phase == 3) {
    cx.products.clear();
    product(moe.down[e], moe.down_bias, moe.down_scale, gu, ld_gu, out, n);
    if (!run_products(cx)) return false;
    next_phase();
  }
  scatter_tokens(cx, op, run, out);
  return true;
}

// Lets the experts of this batch compete for memory. Nothing to do if all of them are in memory.
void note_experts(WeightBatch& cx, const model::Moe& moe) {
  residency::Residency& r = cx.weights.residency();
  if (r.plan().experts.empty()) return;
  cx.uses.clear();
  for (int32_t i = 0; i < cx.n_experts; ++i) {
    const ExpertRun& run = cx.working.expert_runs()[i];
    const int32_t item = cx.weights.item_of_mat(moe.up[static_cast<size_t>(run.expert)]);
    cx.uses.push_back({r.plan().expert_of(item), run.count});
  }
  r.use_experts(cx.rows, cx.uses);
}

void demand_from(WeightBatch& cx, const model::Moe& moe, int32_t first) {
  residency::Residency& r = cx.weights.residency();
  cx.demand.clear();
  const auto units_of = [&](int32_t mat) {
    const int32_t item = cx.weights.item_of_mat(mat);
    for (uint32_t u = r.plan().first_unit_of(item); u < r.plan().end_unit_of(item); ++u)
      cx.demand.push_back(u);
  };
  for (int32_t i = first; i < cx.n_experts; ++i) {
    const size_t e = static_cast<size_t>(cx.working.expert_runs()[i].expert);
    if (!moe.gate.empty()) units_of(moe.gate[e]);
    units_of(moe.up[e]);
    units_of(moe.down[e]);
  }
  r.set_demand(cx.demand);
  cx.weights.poll();
}

}  // namespace

bool op_moe(WeightBatch& cx, const Op& op) {
  const model::Moe& moe = mixture_of(cx.program, op);
  if (!cx.started) {
    cx.n_experts = route(cx, moe, cx.routing);
    note_experts(cx, moe);
    cx.expert = 0;
    if (!op.as<model::MoeOp>().add) {
      for (int32_t t = 0; t < cx.rows; ++t) {
        std::fill_n(cx.buffer(op.out) + t * cx.width(op.out), op.n, 0.0f);
      }
    }
    demand_from(cx, moe, 0);
    cx.started = true;
  }
  for (; cx.expert < cx.n_experts; ++cx.expert) {
    if (!run_expert(cx, op, cx.working.expert_runs()[cx.expert])) return false;
    demand_from(cx, moe, cx.expert + 1);
    cx.phase = 0;
    cx.stream.restart();
  }
  return true;
}

}  // namespace sluice::session
