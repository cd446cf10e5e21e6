// Splits the budget using both models' memory plans.
#include "generate/draft_pair.h"

#include <algorithm>
#include <limits>

#include "base/round_up.h"

namespace sluice::generate {
namespace {

using session::EngineOptions;
using session::MemoryPlan;

Result<MemoryPlan> plan_of(const gguf::Header& header, const EngineOptions& options) {
  Result<session::Inspection> found = session::inspect(header, options);
  if (!found.ok()) return found.status();
  return std::move(found->plan);
}

// The plan within the budget. If the budget is too small, a plan without one, whose minimum then
// tells what is needed.
Result<MemoryPlan> plan_or_least(const gguf::Header& header, EngineOptions options) {
  Result<MemoryPlan> plan = plan_of(header, options);
  if (plan.ok() || plan.status().code() != Code::kBudgetTooSmall) return plan;
  options.memory_budget = 0;
  plan = plan_of(header, options);
  if (!plan.ok() || options.n_ctx > 0 || options.kv_policy.capacity > 0) return plan;
  options.n_ctx = std::min(plan->n_ctx, session::kMinContext);
  return plan_of(header, options);
}

EngineOptions for_draft(EngineOptions options, uint64_t base) {
  options.base_bytes = base;
  options.borrows_threads = true;
  options.draft_max = 0;
  options.nextn = false;
  options.structured_output = false;
  options.adapters = {};
  options.skip = {};
  options.skip_layers_ratio = 0;
  options.exits = {};
  options.head = {.kind = model::HeadPolicy::Kind::kWhole};
  options.n_sessions = options.parallel = options.logits_rows = 1;
  return options;
}

}  // namespace

Status of_draft(const Status& status) {
  return error(status.code(), "the draft model: %s", status.message().c_str());
}

Status pair_too_small(uint64_t budget, uint64_t least) {
  return error(Code::kBudgetTooSmall,
               "a memory budget of %llu bytes is too small for the model and its draft: the "
               "smallest that works is %llu bytes",
               static_cast<unsigned long long>(budget), static_cast<unsigned long long>(least));
}

Status check_same_vocabulary(const tokenizer::Tokenizer& model, const tokenizer::Tokenizer& draft) {
  const int32_t most = std::max(model.n_vocab(), draft.n_vocab());
  for (tokenizer::Token id = 0; id < most; ++id) {
    if (id >= model.n_vocab() || id >= draft.n_vocab() || model.piece(id) != draft.piece(id)) {
      return error(Code::kInvalidArgument,
                   "the draft model has another vocabulary: its token %d differs from the model's",
                   id);
    }
  }
  return {};
}

uint64_t draft_share(uint64_t free, uint64_t model_minimum, uint64_t draft_minimum,
                     uint64_t draft_whole) {
  const uint64_t wanted = std::min(draft_whole, std::max(draft_minimum, free / 2));
  return std::min(wanted, free - model_minimum);
}

Result<PairOptions> share_budget(const gguf::Header& model, const EngineOptions& options,
                                 const gguf::Header& draft, uint64_t draft_base) {
  const uint64_t page = options.page_bytes;
  PairOptions out{.model = options, .draft = for_draft(options, draft_base)};
  out.model.spare = out.draft.spare = nullptr;
  const Result<MemoryPlan> plan = plan_or_least(model, out.model);
  if (!plan.ok()) return plan.status();
  // The draft model keeps a copy of the target's tokens. Up to kFits of them fit into the space
  // that its plan has for a generation; beyond that they are counted here.
  constexpr int32_t kFits = 8192;
  const auto beyond = static_cast<uint64_t>(std::max(0, plan->n_ctx - kFits));
  out.draft.base_bytes += beyond * sizeof(tokenizer::Token);

  EngineOptions whole = out.draft;
  whole.memory_budget = 0;
  whole.n_ctx = 0;
  Result<session::Inspection> found = session::inspect(draft, whole);
  if (!found.ok()) return of_draft(found.status());
  const auto longest = static_cast<int32_t>(
      std::min<int64_t>(found->program.max_context, std::numeric_limits<int32_t>::max()));
  out.draft.n_ctx = std::min(options.n_ctx, longest);
  const Result<MemoryPlan> least = plan_or_least(draft, out.draft);
  if (!least.ok()) return of_draft(least.status());
  whole.n_ctx = least->n_ctx;
  const Result<MemoryPlan> most = plan_of(draft, whole);
  if (!most.ok()) return of_draft(most.status());

  const auto spare = [&options, page](uint64_t budget) {
    return options.spare == nullptr ? 0 : round_up(options.spare(budget), page);
  };
  const uint64_t needed = plan->minimum + least->minimum;
  out.minimum = needed;
  while (out.minimum < needed + spare(out.minimum)) out.minimum = needed + spare(out.minimum);
  const uint64_t budget = options.memory_budget;
  if (budget == 0) return out;
  if (budget < out.minimum) return pair_too_small(budget, out.minimum);
  // The spare bytes are subtracted once, from the whole budget.
  const uint64_t left = spare(budget);
  out.draft.memory_budget =
      draft_share(budget - left, plan->minimum, least->minimum, round_up(most->total(), page));
  out.model.memory_budget = budget - out.draft.memory_budget;
  out.model.base_bytes += left;
  return out;
}

}  // namespace sluice::generate
