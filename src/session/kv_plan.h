// How many positions the keys and values of a plan have room for, and what a cache that evicts
// keeps of them: sizes and refusals of a policy (kv/kv_policy.h) for one model.
#pragma once

#include <cstdint>

#include "kv/kv_policy.h"
#include "kv/kv_type.h"
#include "model/program.h"

namespace sluice::session {

struct KvPlan {
  int32_t positions = 0;          // places of a layer that sees everything
  int32_t sinks = 0, window = 0;  // positions that a query sees: the first, the last; 0: all
  int32_t slots = 0;              // of `positions`: places of those that a layer picks; 0: none
  kv::Eviction eviction{};        // the others, where there are such
  [[nodiscard]] bool evicts() const { return window > 0; }
  // Whether a layer is one that evicts, and not one whose own window is shorter.
  [[nodiscard]] bool evicts(const model::AttentionOp& attention) const {
    return evicts() && (attention.window == 0 || attention.window > sinks + window);
  }
};

// The room for a cache of `positions` of such types, where the policy does not say another number.
// Errors: kInvalidArgument for sizes that are not possible, and where the model's positions cannot
// move, saying why.
[[nodiscard]] Result<KvPlan> plan_room(const model::Program& program, const kv::KvPolicy& policy,
                                       const kv::KvTypes& types, int32_t positions);

// Tokens of a text whose cache evicts: a number that no conversation reaches, while their ids
// take little of the budget.
[[nodiscard]] int32_t endless_text(uint64_t budget, int32_t n_sessions);

}  // namespace sluice::session
