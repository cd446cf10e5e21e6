// GPU layer offload (Replanner::offload_layers). Weights of offloaded layers are treated like
// experts: last in line for memory, outside the streaming order, and read only when the CPU
// computes these layers after all, because the GPU lacks an operation or has just been lost.
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

void CpuExecutor::demand_weights() {
  // Experts, table rows and vectors request their own weights.
  if (!cx_.started || !cx_.program.ops[cx_.at].is<model::MatmulOp>()) return;
  cx_.stream.units_to_come(cx_.products, &cx_.demand);
  cx_.weights.residency().set_demand(cx_.demand);
  cx_.weights.poll();
}

}  // namespace sluice::session
