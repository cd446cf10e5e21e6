// Layers that another device computes (Engine::offload_layers): their weights are out of turn, as
// those of experts are. They come last for memory, are in no pass's order, and are read when the
// CPU computes them after all: where that device does not do what is asked, or has just been lost.
#include "session/cpu_executor.h"

namespace sluice::session {

Status Engine::offload_layers(int32_t layers) {
  const auto mark = [this](int32_t n) {
    for (model::Mat& m : program_.mats) m.expert = m.layer >= 0 && m.layer < n;
    for (const model::Moe& moe : program_.moes) {
      for (const std::vector<int32_t>* mats : {&moe.gate, &moe.up, &moe.down}) {
        for (const int32_t mat : *mats) program_.mats[static_cast<size_t>(mat)].expert = true;
      }
    }
  };
  mark(layers);
  Status planned = set_memory_budget(plan_.budget);
  if (planned.ok()) {
    left_layers_ = layers;
  } else {  // the plan there was goes on
    mark(left_layers_);
  }
  return planned;
}

void CpuExecutor::demand_weights() {
  // Experts, rows of tables and vectors have asked for theirs.
  if (!cursor_.started || !engine_.program().ops[pc_].is<model::MatmulOp>()) return;
  feed_.units_to_come(products_, &demand_);
  engine_.residency().set_demand(demand_);
  engine_.poll();
}

}  // namespace sluice::session
