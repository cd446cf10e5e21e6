// Makes new plans and moves the weights to them.
#include "session/replanner.h"

#include <algorithm>
#include <utility>

#include "session/nextn.h"
#include "session/planner.h"

namespace sluice::session {

Replanner::Replanner(model::Program& program, MemoryPlan& plan, AdapterSet& adapters,
                     const SessionContext& context, const EngineOptions& options)
    : program_(program), plan_(plan), adapters_(adapters), cx_(context), options_(options) {
  options_.kernels = "";  // points to the caller's string
  options_.adapters = {};
  options_.approximate.skip = {};
  options_.n_ctx = plan.context.n_ctx;
  options_.context_from = plan.context.from;
  options_.kv = plan.kv.types;
  if (plan.kv.layout.evicts()) options_.kv_policy.capacity = plan.kv.layout.positions;
  options_.n_batch = plan.batch.n_batch;
  options_.n_threads = plan.threads.n_threads;
  options_.min_threads = 0;  // they are started
  options_.n_checkpoints = plan.kv.shape.n_checkpoints;
  options_.draft_max = plan.batch.draft_max;
}

Status Replanner::set_memory_budget(uint64_t budget) {
  if (!cx_.failure().ok()) return cx_.failure();
  if (cx_.weights.residency().requests().under_way() > 0) {
    return error(Code::kInvalidArgument, "the budget cannot change while reads are pending");
  }
  return replan(budget, adapters_.needs());
}

Status Replanner::lend(uint64_t bytes) {
  if (bytes == lent_) return {};
  options_.reserve += bytes - lent_;
  const uint64_t before = std::exchange(lent_, bytes);
  const Status status = set_memory_budget(plan_.budget.bytes);
  if (!status.ok()) {
    lent_ = before;
    options_.reserve -= bytes - before;
  }
  return status;
}

namespace {
// While one set replaces the other.
AdapterNeeds both(const AdapterNeeds& before, const AdapterNeeds& after) {
  return {before.bytes + after.bytes, std::max(before.scratch, after.scratch)};
}
}  // namespace

uint64_t Replanner::budget_for(std::span<const adapter::Source> sources) const {
  const Result<AdapterSet> next = AdapterSet::bind(program_, cx_.table, sources);
  if (!next.ok()) return 0;
  return Planner(program_, cx_.table, plan_.bytes.tokenizer, both(adapters_.needs(), next->needs()))
      .smallest(options_);
}

Status Replanner::set_adapters(std::span<const adapter::Source> sources) {
  if (!cx_.failure().ok()) return cx_.failure();
  if (cx_.passes.under_way() || cx_.weights.residency().requests().under_way() > 0) {
    return error(Code::kInvalidArgument, "the adapters cannot change during a forward pass");
  }
  Result<AdapterSet> next = AdapterSet::bind(program_, cx_.table, sources);
  if (!next.ok()) return next.status();
  SLUICE_RETURN_IF_ERROR(replan(plan_.budget.bytes, both(adapters_.needs(), next->needs())));
  const Status loaded = next->load(cx_.table, sources);
  if (loaded.ok()) adapters_ = std::move(*next);
  const Status settled = replan(plan_.budget.bytes, adapters_.needs());
  return loaded.ok() ? settled : loaded;
}

Result<MemoryPlan> Replanner::plan_for(uint64_t budget, const AdapterNeeds& adapters) const {
  EngineOptions options = options_;
  options.memory_budget = budget;
  return plan_memory(program_, cx_.table, plan_.bytes.tokenizer, options, adapters);
}

// Makes and adopts a new plan for the same sequences.
Status Replanner::replan(uint64_t budget, const AdapterNeeds& adapters) {
  Result<MemoryPlan> plan = plan_for(budget, adapters);
  if (!plan.ok()) return plan.status();
  MemoryPlan before = plan_;
  // WebAssembly memory is not returned. So that what weights make way for finds it in one piece,
  // pinned ones go together, and are read again.
  const bool makes_way =
      plan->bytes.grammar > before.bytes.grammar || plan->bytes.reserve > before.bytes.reserve;
  if (!platform::kDiscards && makes_way && plan->weights.streamed_bytes > 0) {
    cx_.weights.residency().drop_pins();
  }
  const Status status = adopt(std::move(*plan));
  if (!status.ok()) cx_.weights.fail(adopt(std::move(before)));
  return status;
}

Status Replanner::adopt(MemoryPlan plan) {
  plan_ = std::move(plan);
  cx_.costs.clear();
  if constexpr (model::kNextn) {
    if (cx_.nextn != nullptr) cx_.nextn->costs().clear();
  }
  SLUICE_RETURN_IF_ERROR(cx_.working.allocate(program_, cx_.table, plan_.working()));
  return cx_.weights.replan();
}

}  // namespace sluice::session
