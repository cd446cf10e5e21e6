// Warns before a context is full, so that nobody is surprised by the end of a conversation.
#pragma once

#include <algorithm>
#include <string>

#include "generate/generation.h"
#include "session/memory_plan.h"

namespace sluice::generate {

// A sentence if this generation took its session past 90 % of the context; else "". So a session
// that only grows warns once. A KV cache that evicts has no end.
[[nodiscard]] inline std::string context_warning(const Counts& counts,
                                                 const session::MemoryPlan& plan) {
  if (plan.kv.layout.evicts()) return {};
  const int64_t limit = int64_t{plan.context.n_ctx} * 9 / 10;
  const int64_t before = counts.cached;
  const int64_t now =
      std::min<int64_t>(int64_t{counts.prompt} + counts.generated, plan.context.n_ctx);
  if (before >= limit || now < limit) return {};
  return "the context is nearly full: " + std::to_string(now) + " of " +
         std::to_string(plan.context.n_ctx) + " tokens";
}

}  // namespace sluice::generate
