// GPU layer offload (Replanner::offload_layers). Weights of offloaded layers are treated like
// experts: last in line for memory, outside the streaming order, and read only when the CPU
// computes these layers after all, because the GPU lacks an operation or has just been lost.
#include <utility>

#include "session/cpu_executor.h"
#include "session/replanner.h"

namespace sluice::session {

Status Replanner::offload_layers(int32_t layers) {
  const auto mark = [this](int32_t n) {
    for (model::Mat& m : program_.mats) m.expert = m.share == 0 || (m.layer >= 0 && m.layer < n);
    for (const model::Moe& moe : program_.moes) {
      for (const std::vector<int32_t>* mats : {&moe.gate, &moe.up, &moe.down}) {
        for (const int32_t mat : *mats) program_.mats[static_cast<size_t>(mat)].expert = true;
      }
    }
  };
  mark(layers);
  Status planned = set_memory_budget(plan_.budget.bytes);
  if (planned.ok()) {
    left_layers_ = layers;
  } else {  // keep the old plan
    mark(left_layers_);
  }
  return planned;
}

Status Replanner::hold_kv(int32_t positions) {
  const int32_t before = std::exchange(options_.kv_rows, positions);
  Result<MemoryPlan> plan = plan_for(plan_.budget.bytes);
  Status held = plan.status();
  if (plan.ok()) {
    // First, and without pinned weights, since it needs memory in one piece. There may be none.
    const int32_t n = plan_.sessions.n_sessions;
    cx_.weights.residency().drop_pins();
    held = cx_.sequences.init(plan->kv.shape, n);
    const bool room = held.ok();
    if (room) cx_.sequences.zero();
    if (!room) *plan = plan_;
    Status adopted = room ? Status() : cx_.sequences.init(plan_.kv.shape, n);
    if (adopted.ok()) adopted = adopt(std::move(*plan));
    if (room) held = adopted;
    cx_.weights.fail(std::move(adopted));
  }
  if (!held.ok()) options_.kv_rows = before;
  return held;
}

void CpuExecutor::demand_weights() {
  // Experts, table rows and vectors request their own weights.
  if (!cx_.started || !cx_.program.ops[cx_.at].is<model::MatmulOp>()) return;
  cx_.stream.units_to_come(cx_.products, &cx_.demand);
  cx_.weights.residency().set_demand(cx_.demand);
  cx_.weights.poll();
}

}  // namespace sluice::session
