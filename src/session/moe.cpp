// Mixture of experts (https://arxiv.org/abs/2401.04088): softmax over all experts, the best k,
// their probabilities scaled to sum 1. Only the chosen experts' weights are asked for. Experts run
// in ascending order whatever the number of tokens, so that sums do not depend on batching.
#include <algorithm>
#include <cmath>

#include "session/cpu_executor.h"

namespace sluice::session {

using model::Buf;
using model::Op;

// Fills experts_ (ascending) and routed_ (tokens and weights of each) from the router's logits.
void CpuExecutor::route(const model::Moe& moe) {
  const int64_t n_expert = engine_.program().hp.n_expert;
  const int64_t ld = engine_.width(Buf::kRouter);
  chosen_.clear();
  for (int32_t t = 0; t < rows_; ++t) {
    float* p = buffer(Buf::kRouter) + t * ld;
    engine_.table().softmax(p, n_expert, p);
    for (int32_t k = 0; k < moe.n_used; ++k) {
      int32_t best = -1;
      for (int32_t e = 0; e < n_expert; ++e) {
        const auto begin = chosen_.end() - k;
        if (std::find(begin, chosen_.end(), e) != chosen_.end()) continue;
        if (best < 0 || p[e] > p[best]) best = e;
      }
      chosen_.push_back(best);
    }
  }
  experts_.clear();
  routed_.clear();
  for (int32_t e = 0; e < n_expert; ++e) {
    const int32_t first = static_cast<int32_t>(routed_.size());
    for (size_t i = 0; i < chosen_.size(); ++i) {
      if (chosen_[i] != e) continue;
      const int32_t t = static_cast<int32_t>(i) / moe.n_used;
      const float* p = buffer(Buf::kRouter) + t * ld;
      float sum = 0;
      for (int32_t k = 0; k < moe.n_used; ++k) {
        sum += p[chosen_[static_cast<size_t>(t * moe.n_used + k)]];
      }
      routed_.push_back({t, moe.weights_scale * p[e] / std::max(sum, 6.103515625e-5f)});
    }
    const int32_t count = static_cast<int32_t>(routed_.size()) - first;
    if (count > 0) experts_.push_back({e, first, count});
  }
}

// Phases of one expert: 0 gather, 1 gate and up, 2 activate, 3 down, 4 add to the output.
bool CpuExecutor::run_expert(const Op& op, const Expert& expert) {
  const model::Moe& moe = engine_.program().moes[static_cast<size_t>(op.moe)];
  const kernels::Table& k = engine_.table();
  const int32_t n = op.n;
  float* in = engine_.working().experts();
  float* out = in + static_cast<int64_t>(engine_.plan().n_batch) * n;
  const size_t e = static_cast<size_t>(expert.index);
  const int64_t ld_gu = engine_.width(Buf::kGu);
  float* gu = buffer(Buf::kGu);
  const auto product = [&](int32_t mat, const float* x, int64_t ld, float* y, int64_t ldy) {
    Product p;
    p.mat = mat;
    p.acts = {x, ld, engine_.working().q8(), expert.count};
    p.y = y;
    p.ldy = ldy;
    products_.push_back(p);
  };
  const auto next_phase = [this] {
    ++cursor_.phase;
    feed_.restart();
  };
  if (cursor_.phase == 0) {
    for (int32_t i = 0; i < expert.count; ++i) {
      const int32_t t = routed_[static_cast<size_t>(expert.first + i)].token;
      const float* x = buffer(op.in) + t * engine_.width(op.in);
      std::copy(x, x + n, in + static_cast<int64_t>(i) * n);
    }
    if (wants_q8(moe.gate[e]) || wants_q8(moe.up[e])) {
      quantize(in, n, n, expert.count, engine_.working().q8());
    }
    next_phase();
  }
  if (cursor_.phase == 1) {
    products_.clear();
    product(moe.gate[e], in, n, gu, ld_gu);
    product(moe.up[e], in, n, gu + moe.n_ff, ld_gu);
    if (!run_products()) return false;
    next_phase();
  }
  if (cursor_.phase == 2) {
    for (int32_t i = 0; i < expert.count; ++i) {
      float* gate = gu + i * ld_gu;
      k.silu_mul(gate, gate + moe.n_ff, moe.n_ff, gate);
    }
    if (wants_q8(moe.down[e])) quantize(gu, ld_gu, moe.n_ff, expert.count, engine_.working().q8());
    next_phase();
  }
  if (cursor_.phase == 3) {
    products_.clear();
    product(moe.down[e], gu, ld_gu, out, n);
    if (!run_products()) return false;
    next_phase();
  }
  for (int32_t i = 0; i < expert.count; ++i) {
    const Routed& routed = routed_[static_cast<size_t>(expert.first + i)];
    float* y = buffer(op.out) + routed.token * engine_.width(op.out);
    const float* x = out + static_cast<int64_t>(i) * n;
    const float weight = op.scale * routed.weight;
    for (int32_t j = 0; j < n; ++j) y[j] += weight * x[j];
  }
  return true;
}

void CpuExecutor::demand_from(const model::Moe& moe, size_t first) {
  residency::Residency& r = engine_.residency();
  demand_.clear();
  for (size_t i = first; i < experts_.size(); ++i) {
    const size_t e = static_cast<size_t>(experts_[i].index);
    for (const int32_t mat : {moe.gate[e], moe.up[e], moe.down[e]}) {
      const int32_t item = engine_.item_of_mat(mat);
      for (uint32_t u = r.first_unit(item); u < r.end_unit(item); ++u) demand_.push_back(u);
    }
  }
  r.set_demand(demand_);
  engine_.pump();
}

bool CpuExecutor::op_moe(const Op& op) {
  const model::Moe& moe = engine_.program().moes[static_cast<size_t>(op.moe)];
  if (!cursor_.started) {
    route(moe);
    expert_ = 0;
    demand_from(moe, 0);
    cursor_.started = true;
  }
  for (; expert_ < experts_.size(); ++expert_) {
    if (!run_expert(op, experts_[expert_])) return false;
    demand_from(moe, expert_ + 1);
    cursor_.phase = 0;
    feed_.restart();
  }
  return true;
}

}  // namespace sluice::session
