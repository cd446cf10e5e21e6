// Decides the memory plan of a model from its header: KV cache types, context, batch, drafts and
// weights that fit the budget, or the smallest budget that works.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "session/memory_plan.h"
#include "session/weight_order.h"

namespace sluice::session {

struct Inspection;  // engine.h

// Which budget some options need.
class BudgetRule {
 public:
  // The smallest budget that works with these options; 0: none does.
  [[nodiscard]] virtual uint64_t smallest(const EngineOptions& options) const = 0;

 protected:
  ~BudgetRule() = default;
};

// Plans one model for several options; the weights are laid out once. Every budget or context that
// is called the smallest or the longest is found here, by what accepts or refuses it. Borrows its
// arguments.
class Planner final : public BudgetRule {
 public:
  Planner(const model::Program& program, const kernels::Table& table, uint64_t tokenizer_bytes,
          const AdapterNeeds& adapters);
  explicit Planner(const Inspection& found);
  // Errors: kBudgetTooSmall, with the smallest budget that works; kUnsupportedArchitecture;
  // kInvalidArgument (also for KV cache types that the model does not support, naming them).
  [[nodiscard]] Result<MemoryPlan> plan(const EngineOptions& options) const;
  // Without weights: the plan whose `minimum` is the smallest budget with which plan() succeeds.
  // Errors: plan()'s others.
  [[nodiscard]] Status least(EngineOptions options, MemoryPlan& plan) const;
  [[nodiscard]] uint64_t smallest(const EngineOptions& options) const override;

 private:
  using Types = std::array<kv::KvTypes, 4>;
  struct Choice {
    EngineOptions options;  // with the KV cache types and threads that were chosen
    int32_t n_ctx = 0;
    bool fits = false;  // the budget; if not, this is what needs the smallest
  };
  // The KV cache types to try, and the index of the first. Returns their number.
  size_t types(EngineOptions options, Types* out, size_t* best) const;
  // Everything but weights at its smallest, with these types and this context.
  [[nodiscard]] Status size_minimum(const EngineOptions& options, int32_t n_ctx,
                                    MemoryPlan& plan) const;
  [[nodiscard]] Status check(const EngineOptions& options) const;
  [[nodiscard]] Status set_sessions(const EngineOptions& options, int32_t n_ctx,
                                    MemoryPlan& plan) const;
  // The plan, or least()'s if its `minimum` exceeds the budget. Its steps:
  [[nodiscard]] Status search(const EngineOptions& options, MemoryPlan& plan) const;
  // 1. Best KV cache types and longest context that fit.
  [[nodiscard]] Status choose(const EngineOptions& options, Choice& choice, MemoryPlan& plan) const;
  // 2. The longest sequences, most checkpoints and most draft tokens that the budget allows.
  void extend(const EngineOptions& options, MemoryPlan& plan) const;
  // 3. The largest batch whose buffers take at most an eighth of the budget.
  void choose_batch(const EngineOptions& options, MemoryPlan& plan) const;
  // 4. Pinned units and the stream buffer in what is left. Returns the bytes of the units' records.
  uint64_t lay_weights(const EngineOptions& options, uint64_t records, MemoryPlan& plan) const;
  // 5. A cache of embedding rows, unless a fully resident model would stream because of it.
  uint64_t cache_rows(const EngineOptions& options, uint64_t records, MemoryPlan& plan) const;
  uint64_t size(const EngineOptions& options, MemoryPlan& plan) const;
  [[nodiscard]] bool fits(const EngineOptions& options, MemoryPlan& plan) const;

  const model::Program& program_;
  const kernels::Table& table_;
  uint64_t tokenizer_bytes_ = 0;
  AdapterNeeds adapters_;
  WeightOrder order_;
  uint64_t ring_ = 0;       // smallest stream buffer
  uint64_t max_units_ = 0;  // records of the units that it needs
};

// Planner's plan(), once.
[[nodiscard]] Result<MemoryPlan> plan_memory(const model::Program& program,
                                             const kernels::Table& table, uint64_t tokenizer_bytes,
                                             const EngineOptions& options,
                                             const AdapterNeeds& adapters = {});

// The smallest budget, in whole pages, that has `bytes` besides EngineOptions::spare.
[[nodiscard]] uint64_t smallest_with_spare(uint64_t bytes, const EngineOptions& options);

// The longest n_ctx that these options work with in their budget, whatever their own; 0: none.
// `room`: the KV cache of a plan with these options.
[[nodiscard]] int64_t longest_context(const model::Program& program, const KvPlan& room,
                                      EngineOptions options, const BudgetRule& rule);

}  // namespace sluice::session
