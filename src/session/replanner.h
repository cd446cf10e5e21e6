// Changes the memory plan of a loaded model: another budget, other adapters, memory lent to others,
// layers left to the GPU. Each makes a new plan for the same context and moves the weights to it.
// Sessions stay valid; weights that stay pinned are not read again; a running pass restarts its
// batch.
#pragma once

#include <span>

#include "session/session_context.h"

namespace sluice::session {

class Replanner {
 public:
  // Borrows what it changes and `context`, which refers to the same. `options` as first planned.
  Replanner(model::Program& program, MemoryPlan& plan, AdapterSet& adapters,
            const SessionContext& context, const EngineOptions& options);

  // Changes the budget (0: as much as the model wants). No read may be pending. Errors, which leave
  // everything unchanged: plan_memory's, kInvalidArgument, kOutOfMemory. If even the old memory
  // cannot be allocated again, Weights::failure() returns the error from then on.
  [[nodiscard]] Status set_memory_budget(uint64_t budget);
  // Whether later plans set memory aside for structured output (EngineOptions::structured_output).
  // An engine that was opened without begins here when a constraint first asks for it, and then
  // sets its budget again.
  void plan_structured_output(bool on) { options_.structured_output = on; }
  // Leaves `bytes` of the budget to others, in place of what it left them before. Errors:
  // set_memory_budget's, with nothing changed.
  [[nodiscard]] Status lend(uint64_t bytes);
  // What set_memory_budget would change to. Its `minimum` is the smallest budget that it accepts.
  [[nodiscard]] Result<MemoryPlan> plan_for(uint64_t budget) const {
    return plan_for(budget, adapters_.needs());
  }

  // The GPU computes the first `layers` layers and holds their weights. Memory then goes to the
  // other layers first; weights of offloaded layers are read only if the CPU has to compute them.
  // 0: the CPU computes all layers. Call between passes or as a batch begins. Errors:
  // set_memory_budget's.
  [[nodiscard]] Status offload_layers(int32_t layers);
  // Memory for the first `positions` of a KV cache that the GPU had (EngineOptions::kv_rows). What
  // sequences hold is lost. Call as offload_layers. Errors: set_memory_budget's.
  [[nodiscard]] Status hold_kv(int32_t positions);

  // Replaces the adapters, within the same budget; none: the bare model. Sessions recompute what
  // the old adapters computed. No pass and no read may be pending. The old and new adapters must
  // fit together while the new ones are read. Errors, which leave everything unchanged:
  // AdapterSet's, set_memory_budget's.
  [[nodiscard]] Status set_adapters(std::span<const adapter::Source> sources);
  // The smallest budget with which set_adapters succeeds; 0: none does.
  [[nodiscard]] uint64_t budget_for(std::span<const adapter::Source> sources) const;

 private:
  [[nodiscard]] Status adopt(MemoryPlan plan);
  [[nodiscard]] Result<MemoryPlan> plan_for(uint64_t budget, const AdapterNeeds& adapters) const;
  [[nodiscard]] Status replan(uint64_t budget, const AdapterNeeds& adapters);

  model::Program& program_;
  MemoryPlan& plan_;
  AdapterSet& adapters_;
  const SessionContext& cx_;
  EngineOptions options_;
  int32_t left_layers_ = 0;  // offloaded to the GPU
  uint64_t lent_ = 0;        // part of options_.reserve
};

}  // namespace sluice::session
