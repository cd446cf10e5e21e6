// Splits the budget using both models' memory plans.
#include "generate/draft_pair.h"

#include <algorithm>

#include "base/round_up.h"

namespace sluice::generate {
namespace {

using session::EngineOptions;
using session::MemoryPlan;
using session::ReportSink;

EngineOptions unlimited(EngineOptions options) {
  options.memory_budget = 0;
  return options;
}

EngineOptions for_draft(EngineOptions options, uint64_t base) {
  options.n_ctx = 0;
  options.base_bytes = base;
  options.spare = nullptr;
  options.reserve = 0;
  options.min_budget = 0;
  options.borrows_threads = true;
  options.draft_max = 0;
  options.nextn = false;
  options.structured_output = false;
  options.adapters = {};
  options.approximate = {};
  options.approximate.head.kind = session::HeadPolicy::Kind::kWhole;
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

PairPlanner::PairPlanner(const gguf::Header& model, const EngineOptions& options,
                         const gguf::Header& draft, uint64_t draft_base)
    : draft_base_(draft_base),
      model_(session::inspect(model, unlimited(options))),
      draft_(session::inspect(draft, for_draft(unlimited(options), draft_base))) {
  if (!status().ok()) return;
  plan_model_.emplace(*model_);
  plan_draft_.emplace(*draft_);
}

__attribute__((noinline)) PairPlanner::~PairPlanner() = default;  // several callers

Status PairPlanner::status() const {
  if (!model_.ok()) return model_.status();
  return draft_.ok() ? Status() : of_draft(draft_.status());
}

EngineOptions PairPlanner::draft_options(const EngineOptions& options, int32_t n_ctx) const {
  EngineOptions out = for_draft(options, draft_base_);
  // The draft model keeps a copy of the target's tokens. Up to kFits of them fit into the space
  // that its plan has for a generation; beyond that they are counted here.
  constexpr int32_t kFits = 8192;
  out.base_bytes += static_cast<uint64_t>(std::max(0, n_ctx - kFits)) * sizeof(tokenizer::Token);
  out.n_ctx = static_cast<int32_t>(std::min<int64_t>(options.n_ctx, draft_->program.max_context));
  return out;
}

Status PairPlanner::least(EngineOptions options, Least* out) const {
  options.spare = nullptr;
  options.min_budget = 0;
  SLUICE_RETURN_IF_ERROR(plan_model_->least(options, out->model));
  const Status status =
      plan_draft_->least(draft_options(options, out->model.context.n_ctx), out->draft);
  return status.ok() ? status : of_draft(status);
}

uint64_t PairPlanner::smallest(const EngineOptions& options) const {
  Least found;
  if (!least(options, &found).ok()) return 0;
  return session::smallest_with_spare(found.model.budget.minimum + found.draft.budget.minimum,
                                      options);
}

Result<PairOptions> PairPlanner::share(const EngineOptions& given) const {
  EngineOptions options = given;
  options.min_threads = 0;  // both models have the same threads
  const uint64_t budget = options.memory_budget;
  Least found;
  for (;; options.n_threads = given.min_threads) {
    SLUICE_RETURN_IF_ERROR(least(options, &found));
    const uint64_t smallest = session::smallest_with_spare(
        found.model.budget.minimum + found.draft.budget.minimum, options);
    if (budget == 0 || budget >= smallest) break;
    if (given.min_threads == 0 || given.min_threads >= options.n_threads)
      return pair_too_small(budget, smallest);
  }
  const uint64_t draft_minimum = found.draft.budget.minimum;
  // The spare bytes are subtracted once, from the whole budget.
  const uint64_t spare =
      options.spare == nullptr ? 0 : round_up(options.spare(budget), options.page_bytes);
  const uint64_t left = budget - std::min(budget, spare);
  PairOptions out{.model = options, .draft = {}};
  out.model.spare = nullptr;
  out.model.min_budget = 0;
  if (budget > 0) out.model.memory_budget = left - draft_minimum;
  const Result<MemoryPlan> plan = plan_model_->plan(out.model);
  if (!plan.ok()) return plan.status();
  // The smallest budget for this context.
  EngineOptions same = given;
  if (same.n_ctx == 0 && same.kv_policy.capacity == 0) same.n_ctx = plan->kv.layout.positions;
  out.minimum = this->smallest(same);
  // What was chosen is fixed, because the model's share may be smaller. A text that has no end is
  // as long as in the smallest budget, where the draft model's copy of it fits.
  const int32_t n_ctx =
      plan->context.endless && budget > 0 ? found.model.context.n_ctx : plan->context.n_ctx;
  out.draft = draft_options(options, n_ctx);
  if (budget == 0) return out;
  out.model.n_ctx = n_ctx;
  out.model.context_from = plan->context.from;
  out.model.kv = plan->kv.types;
  if (plan->kv.layout.evicts()) out.model.kv_policy.capacity = plan->kv.layout.positions;
  const uint64_t model_minimum = plan_model_->smallest(out.model);
  out.draft.memory_budget = left;
  const Result<MemoryPlan> whole = plan_draft_->plan(out.draft);
  if (!whole.ok()) return of_draft(whole.status());
  out.draft.memory_budget =
      draft_share(left, model_minimum, draft_minimum, round_up(whole->total(), options.page_bytes));
  out.model.memory_budget = budget - out.draft.memory_budget;
  out.model.reserve += spare;
  return out;
}

Result<PairOptions> share_budget(const gguf::Header& model, const EngineOptions& options,
                                 const gguf::Header& draft, uint64_t draft_base) {
  const PairPlanner pair(model, options, draft, draft_base);
  SLUICE_RETURN_IF_ERROR(pair.status());
  return pair.share(options);
}

Result<session::Inspection> inspect(const gguf::Header& model, const EngineOptions& options,
                                    const gguf::Header* draft, uint64_t draft_base,
                                    const ReportSink& sink) {
  PairOptions with{.model = options, .draft = {}};
  std::optional<PairPlanner> pair;
  MemoryPlan beside;
  if (draft != nullptr) {
    pair.emplace(model, options, *draft, draft_base);
    SLUICE_RETURN_IF_ERROR(pair->status());
    const Result<PairOptions> share = pair->share(options);
    if (!share.ok()) return share.status();
    with = *share;
    Result<MemoryPlan> plan = pair->plan_draft().plan(with.draft);
    if (!plan.ok()) return of_draft(plan.status());
    beside = std::move(*plan);
  }
  Result<session::Inspection> found = session::inspect(model, with.model);
  if (!found.ok()) return found;
  session::report_model(model, *found, sink);
  session::report_plan(found->plan, draft != nullptr ? &beside : nullptr, with.minimum, sink);
  const session::Planner alone(*found);
  const session::BudgetRule* rule = &alone;
  if (pair) rule = &*pair;
  session::report_kv_types(*found, options, *rule, sink);
  return found;
}

}  // namespace sluice::generate
