// Mixture of experts (https://arxiv.org/abs/2401.04088): only the weights of chosen experts
// (moe_router.h) are requested. Their outputs are added in ascending order of experts whatever the
// number of tokens, so sums do not depend on batching. While few tokens are computed, experts run
// in the order in which their weights are there: those in memory while the others are read.
#include <algorithm>

#include "session/moe_router.h"
#include "session/ops.h"
#include "session/weight_ops.h"

namespace sluice::session {

using model::Buf;
using model::Op;

namespace {

constexpr uint64_t kReadAhead = 32 << 20;  // missing bytes of experts that the reader knows of

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

[[nodiscard]] bool adds_last(const WeightBatch& cx) {
  return kReadyExpertsFirst && cx.adds_last;
}

// The row of an expert's outputs: behind the inputs of one expert, and behind the outputs of the
// experts before it if they are added at the end.
int64_t output_row(const WeightBatch& cx, const ExpertRun& run) {
  return adds_last(cx) ? int64_t{cx.rows} + run.first : int64_t{cx.plan.batch.n_batch};
}

// Phases of one expert: 0 gather, 1 gate and up, 2 activate, 3 down, 4 add to the output.
bool run_expert(WeightBatch& cx, const Op& op, const ExpertRun& run) {
  const model::Moe& moe = mixture_of(cx.program, op);
  const int32_t n = op.n;
  float* in = cx.working.experts();
  float* out = in + output_row(cx, run) * n;
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
  if (!adds_last(cx)) scatter_tokens(cx, op, run, out);
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

// Calls body(unit) for the units of an expert, in order of use.
template <typename Body>
void for_units(WeightBatch& cx, const model::Moe& moe, int32_t expert, Body&& body) {
  const residency::Residency& r = cx.weights.residency();
  const size_t e = static_cast<size_t>(expert);
  const auto units_of = [&](int32_t mat) {
    const int32_t item = cx.weights.item_of_mat(mat);
    for (uint32_t u = r.plan().first_unit_of(item); u < r.plan().end_unit_of(item); ++u) body(u);
  };
  if (!moe.gate.empty()) units_of(moe.gate[e]);
  units_of(moe.up[e]);
  units_of(moe.down[e]);
}

uint64_t missing_bytes(WeightBatch& cx, const model::Moe& moe, int32_t expert) {
  const residency::Residency& r = cx.weights.residency();
  uint64_t bytes = 0;
  for_units(cx, moe, expert, [&](uint32_t unit) {
    if (!r.ready(unit)) bytes += r.plan().units[unit].bytes;
  });
  return bytes;
}

// Lets the reader begin with the experts from `first` on, while those before them are computed. The
// requests of the stream buffer are too few for that.
[[maybe_unused]] void announce_from(WeightBatch& cx, const model::Moe& moe, int32_t first) {
  RangeReader* reader = cx.weights.reader();
  const residency::Residency& r = cx.weights.residency();
  if (reader == nullptr || r.plan().experts.empty()) return;
  uint64_t ahead = 0;
  for (int32_t i = first; i < cx.n_experts && ahead < kReadAhead; ++i) {
    const int32_t expert = cx.working.expert_runs()[i].expert;
    ahead += missing_bytes(cx, moe, expert);
    if (i < cx.announced) continue;
    cx.announced = i + 1;
    for_units(cx, moe, expert, [&](uint32_t unit) {
      const residency::Unit& u = r.plan().units[unit];
      if (!r.ready(unit)) reader->will_need(u.file, u.offset, u.bytes);
    });
  }
}

// Moves the first expert from `first` on that is in memory to that place. False: none is.
bool choose_ready(WeightBatch& cx, const model::Moe& moe, int32_t first) {
  ExpertRun* const runs = cx.working.expert_runs();
  for (int32_t i = first; i < cx.n_experts; ++i) {
    if (missing_bytes(cx, moe, runs[i].expert) > 0) continue;
    if (i >= cx.announced) ++cx.announced;
    std::rotate(runs + first, runs + i, runs + i + 1);
    return true;
  }
  return false;
}

// Begins the expert at `first`: requests what it and those behind it miss.
void start_expert(WeightBatch& cx, const model::Moe& moe, int32_t first) {
  cx.demand.clear();
  for (int32_t i = first; i < cx.n_experts; ++i) {
    for_units(cx, moe, cx.working.expert_runs()[i].expert,
              [&cx](uint32_t unit) { cx.demand.push_back(unit); });
  }
  cx.weights.residency().set_demand(cx.demand);
  cx.weights.poll();
  if constexpr (kReadyExpertsFirst) announce_from(cx, moe, first);
  cx.phase = 0;
  cx.stream.restart();
}

// Chooses the expert that is computed next, at `first`: one in memory, if there is one.
void begin_expert(WeightBatch& cx, const model::Moe& moe, int32_t first) {
  if constexpr (kReadyExpertsFirst) {
    if (cx.adds_last) static_cast<void>(choose_ready(cx, moe, first));
  }
  start_expert(cx, moe, first);
}

// The current expert waits for its first rows: another one may be in memory by now.
[[maybe_unused]] bool change_expert(WeightBatch& cx, const model::Moe& moe) {
  if (!cx.adds_last || cx.read_failed || cx.phase > 1 || !cx.stream.at_start()) return false;
  if (!choose_ready(cx, moe, cx.expert)) return false;
  start_expert(cx, moe, cx.expert);
  return true;
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
    if constexpr (kReadyExpertsFirst) {
      cx.adds_last = !cx.routing.ascending && !cx.weights.residency().plan().experts.empty() &&
                     cx.rows * (1 + moe.n_used) <= 2 * cx.plan.batch.n_batch;
      cx.announced = 0;
    }
    begin_expert(cx, moe, 0);
    cx.started = true;
  }
  for (; cx.expert < cx.n_experts; ++cx.expert) {
    while (!run_expert(cx, op, cx.working.expert_runs()[cx.expert])) {
      if (!kReadyExpertsFirst || !change_expert(cx, moe)) return false;
    }
    begin_expert(cx, moe, cx.expert + 1);
  }
  if (adds_last(cx)) {
    ExpertRun all;
    for (int32_t i = 0; i < cx.n_experts; ++i) all.count += cx.working.expert_runs()[i].count;
    scatter_tokens(cx, op, all, cx.working.experts() + output_row(cx, all) * op.n);
  }
  return true;
}

}  // namespace sluice::session
