// Layers that another device computes (Engine::leave_layers): their weights are out of turn, as
// those of experts are. They come last for memory, are in no pass's order, and are read when the
// CPU computes them after all: where that device is lost, or does not do what is asked.
#include "session/cpu_executor.h"

namespace sluice::session {

Status Engine::leave_layers(int32_t layers) {
  bool left = true;
  for (model::Mat& m : program_.mats) {
    if (m.layer < 0 || m.layer >= layers || m.expert) continue;
    m.expert = true;
    left = false;
  }
  return left ? Status{} : set_memory_budget(plan_.budget);
}

void CpuExecutor::demand_weights() {
  // Experts, rows of tables and vectors have asked for theirs.
  if (!cursor_.started || !engine_.program().ops[pc_].is<model::MatmulOp>()) return;
  feed_.units_to_come(products_, &demand_);
  engine_.residency().set_demand(demand_);
  engine_.poll();
}

}  // namespace sluice::session
