// Mixture of experts (https://arxiv.org/abs/2401.04088): only the weights of chosen experts
// (moe_router.h) are requested. Experts run in ascending order whatever the number of tokens, so
// sums do not depend on batching.
#include <algorithm>

#include "session/cpu_executor.h"

namespace sluice::session {

using model::Buf;
using model::Op;

namespace {

const model::Moe& mixture_of(const model::Program& p, const Op& op) {
  return p.moes[static_cast<size_t>(op.as<model::MoeOp>().moe)];
}

}  // namespace

void CpuExecutor::route(const model::Moe& moe) {
  const float* bias = moe.choice_bias >= 0 ? engine_.vec(moe.choice_bias) : nullptr;
  Choice* choices = engine_.working().choices();
  for_rows(rows_, [&](int32_t t) {
    float* logits = buffer(Buf::kRouter) + t * engine_.width(Buf::kRouter);
    choose_experts(moe, engine_.table(), logits, bias, logits + moe.n_expert,
                   choices + static_cast<int64_t>(t) * moe.n_used);
  });
  n_runs_ = group_by_expert(choices, rows_, moe.n_used, static_cast<int32_t>(moe.up.size()),
                            engine_.working().routed(), engine_.working().expert_runs());
  run_ = 0;
}

// Gathers the inputs of the expert's tokens, [count][n].
void CpuExecutor::gather_tokens(const Op& op, const ExpertRun& run, float* to) {
  const model::Moe& moe = mixture_of(engine_.program(), op);
  for (int32_t i = 0; i < run.count; ++i) {
    const Routed& routed = engine_.working().routed()[run.first + i];
    const float* x = buffer(op.in) + routed.token * engine_.width(op.in);
    float* y = to + static_cast<int64_t>(i) * op.n;
    if (moe.weigh_input) {
      engine_.table().scale(x, routed.weight, op.n, y);
    } else {
      std::copy(x, x + op.n, y);
    }
  }
}

void CpuExecutor::scatter_tokens(const Op& op, const ExpertRun& run, const float* from) {
  const model::Moe& moe = mixture_of(engine_.program(), op);
  const float scale = op.as<model::MoeOp>().scale;
  for (int32_t i = 0; i < run.count; ++i) {
    const Routed& routed = engine_.working().routed()[run.first + i];
    float* y = buffer(op.out) + routed.token * engine_.width(op.out);
    const float* x = from + static_cast<int64_t>(i) * op.n;
    const float weight = moe.weigh_input ? scale : scale * routed.weight;
    for (int32_t j = 0; j < op.n; ++j) y[j] += weight * x[j];
  }
}

// Phases of one expert: 0 gather, 1 gate and up, 2 activate, 3 down, 4 add to the output.
bool CpuExecutor::run_expert(const Op& op, const ExpertRun& run) {
  const model::Moe& moe = mixture_of(engine_.program(), op);
  const int32_t n = op.n;
  float* in = engine_.working().experts();
  float* out = in + static_cast<int64_t>(engine_.plan().batch.n_batch) * n;
  const size_t e = static_cast<size_t>(run.expert);
  const int64_t ld_gu = engine_.width(Buf::kGateUp);
  float* gu = buffer(Buf::kGateUp);
  const auto product = [&](int32_t mat, int32_t bias, int32_t scale, const float* x, int64_t ld,
                           float* y, int64_t ldy) {
    Product p;
    p.mat = mat;
    p.bias = bias;
    p.bias_at = run.expert * engine_.program().mats[static_cast<size_t>(mat)].rows;
    p.acts = {x, ld, engine_.working().q8(), run.count};
    p.y = y;
    p.ldy = ldy;
    if (scale >= 0) p.factor = engine_.vec(scale)[e];
    products_.push_back(p);
  };
  const auto next_phase = [this] {
    ++cursor_.phase;
    feed_.restart();
  };
  const bool gated = !moe.gate.empty();
  if (cursor_.phase == 0) {
    gather_tokens(op, run, in);
    if ((gated && wants_q8(moe.gate[e])) || wants_q8(moe.up[e])) {
      quantize(in, n, n, run.count, engine_.working().q8());
    }
    next_phase();
  }
  if (cursor_.phase == 1) {
    products_.clear();
    if (gated) product(moe.gate[e], moe.gate_bias, moe.gate_scale, in, n, gu, ld_gu);
    float* up = gated ? gu + moe.n_ff : gu;
    product(moe.up[e], moe.up_bias, moe.up_scale, in, n, up, ld_gu);
    if (!run_products()) return false;
    next_phase();
  }
  if (cursor_.phase == 2) {
    for_rows(run.count, [&](int32_t i) { activate(moe.act, gu + i * ld_gu, moe.n_ff); });
    if (wants_q8(moe.down[e])) quantize(gu, ld_gu, moe.n_ff, run.count, engine_.working().q8());
    next_phase();
  }
  if (cursor_.phase == 3) {
    products_.clear();
    product(moe.down[e], moe.down_bias, moe.down_scale, gu, ld_gu, out, n);
    if (!run_products()) return false;
    next_phase();
  }
  scatter_tokens(op, run, out);
  return true;
}

void CpuExecutor::demand_from(const model::Moe& moe, int32_t first) {
  residency::Residency& r = engine_.residency();
  demand_.clear();
  const auto units_of = [&](int32_t mat) {
    const int32_t item = engine_.item_of_mat(mat);
    for (uint32_t u = r.first_unit(item); u < r.end_unit(item); ++u) demand_.push_back(u);
  };
  for (int32_t i = first; i < n_runs_; ++i) {
    const size_t e = static_cast<size_t>(engine_.working().expert_runs()[i].expert);
    if (!moe.gate.empty()) units_of(moe.gate[e]);
    units_of(moe.up[e]);
    units_of(moe.down[e]);
  }
  r.set_demand(demand_);
  engine_.poll();
}

bool CpuExecutor::op_moe(const Op& op) {
  const model::Moe& moe = mixture_of(engine_.program(), op);
  if (!cursor_.started) {
    route(moe);
    if (!op.as<model::MoeOp>().add) {
      for (int32_t t = 0; t < rows_; ++t) {
        std::fill_n(buffer(op.out) + t * engine_.width(op.out), op.n, 0.0f);
      }
    }
    demand_from(moe, 0);
    cursor_.started = true;
  }
  for (; run_ < n_runs_; ++run_) {
    if (!run_expert(op, engine_.working().expert_runs()[run_])) return false;
    demand_from(moe, run_ + 1);
    cursor_.phase = 0;
    feed_.restart();
  }
  return true;
}

}  // namespace sluice::session
