// Chooses lengths and counts, and asks plan_sizes what they take.
#include "session/planner.h"

#include <algorithm>

#include "base/round_up.h"
#include "base/thread_pool.h"
#include "draft/policy.h"
#include "session/engine.h"
#include "session/plan_sizes.h"

namespace sluice::session {
namespace {

using model::Program;

constexpr int32_t kMinDraft = 3;

// Draft tokens per pass if automatic: their logits take at most a thirty-second of the budget.
int32_t choose_draft(const Program& p, uint64_t budget) {
  const uint64_t row = static_cast<uint64_t>(std::max<int64_t>(p.hp.n_vocab, 1)) * sizeof(float);
  const uint64_t rows = budget == 0 ? UINT64_MAX : budget / 32 / row;
  return std::max(kMinDraft, static_cast<int32_t>(std::min<uint64_t>(rows, kDefaultDraft)));
}

void set_draft(const Program& p, const EngineOptions& options, int32_t tokens, MemoryPlan& plan) {
  const int32_t room = plan.kv.layout.evicts() ? max_batch(plan.kv.layout) : plan.context.n_ctx;
  const int32_t max_draft = single_batch(p) ? 0 : std::min(draft::kMaxDraftTokens, (room - 1) / 2);
  plan.batch.draft_max = std::clamp(tokens, 0, max_draft);
  plan.batch.logits_rows =
      std::max(options.logits_rows, plan.sessions.parallel + plan.batch.draft_max);
  // A recurrent state rewinds to where the batch began: accepted tokens are computed twice.
  const bool twice = plan.batch.draft_max > 0 && plan.kv.shape.recurrent();
  plan.batch.draft_batch = (plan.batch.draft_max + 1) * (twice ? 2 : 1);
}

int64_t model_context(const Program& p) {
  const int64_t texts = p.decoder > 0 ? 2 : 1;  // the encoder's and the decoder's
  return std::min<int64_t>(texts * p.hp.n_ctx_train, p.max_context);
}

// The shortest automatic context.
int32_t min_context(const EngineOptions& options) {
  return std::max(kMinContext, min_positions(options.kv_policy, options.kv, options.min_batch));
}

// The automatic context without a budget.
int32_t default_context(const Program& p, const EngineOptions& options) {
  const int64_t limit = single_batch(p) ? kDefaultWholeContext : kDefaultContext;
  const auto n = static_cast<int32_t>(std::min(model_context(p), limit));
  return options.kv_policy.evicts() ? std::max(n, min_context(options)) : n;
}

int32_t shorter_context(int32_t n, int32_t min) {
  return std::max(min, (n - 1) / kMinContext * kMinContext);
}

int32_t choose_context(const Program& p, const kernels::Table& table,
                       const EngineOptions& options) {
  if (options.n_ctx > 0) return options.n_ctx;
  const int32_t min = min_context(options);
  int32_t n = default_context(p, options);
  while (options.memory_budget > 0 && n > min &&
         context_bytes(p, table, options.kv, n) > options.memory_budget / 4) {
    n = shorter_context(n, min);
  }
  return n;
}

ContextFrom context_from(const Program& p, const EngineOptions& options, int32_t n) {
  if (options.n_ctx > 0) return options.context_from;
  if (n < default_context(p, options)) return ContextFrom::kBudget;
  return n < model_context(p) ? ContextFrom::kDefault : ContextFrom::kModel;
}

uint64_t spare_of(const EngineOptions& options, uint64_t budget) {
  return options.spare != nullptr ? options.spare(budget) : 0;
}

int32_t min_n_batch(const Program& p, const EngineOptions& options, const MemoryPlan& plan) {
  if (single_batch(p)) return plan.context.n_ctx;
  // All logits of a pass come from one batch.
  const int32_t most = max_batch(plan.kv.layout);
  const int32_t rows =
      std::min(options.logits_rows, options.n_batch > 0 ? std::min(options.n_batch, most) : most);
  return std::min(plan.context.n_ctx, std::max({plan.batch.draft_batch, plan.sessions.parallel,
                                                options.min_batch, rows}));
}

// The context of a text whose length the budget limits.
void set_text(uint64_t budget, MemoryPlan& plan) {
  plan.context.n_ctx = endless_text(budget, plan.sessions.n_sessions, plan.kv.layout.positions);
  plan.kv.shape.n_ctx = plan.context.n_ctx;
}

bool automatic_context(const EngineOptions& options) {
  return options.n_ctx == 0 && options.kv_policy.capacity == 0;
}

}  // namespace

uint64_t smallest_with_spare(uint64_t bytes, const EngineOptions& options) {
  uint64_t budget = 0;
  for (uint64_t needed = std::max(bytes, options.min_budget); budget < needed;) {
    budget = round_up(needed, options.page_bytes);
    needed = bytes + spare_of(options, budget);
  }
  return budget;
}

int64_t longest_context(const Program& program, const KvPlan& room, EngineOptions options,
                        const BudgetRule& rule) {
  // With a capacity, a context within it is no limit.
  int64_t longest = options.kv_policy.capacity > 0 ? room.positions : 0;
  int64_t above = std::min(program.max_context, model::kMaxContext) + 1;
  bool fits = false;
  while (longest + 1 < above) {
    const int64_t middle = (longest + above) / 2;
    options.n_ctx = static_cast<int32_t>(middle);
    const uint64_t needed = rule.smallest(options);
    if (needed > options.memory_budget) {
      above = middle;
    } else {  // 0: too short for a policy that evicts
      longest = middle;
      fits = needed > 0;
    }
  }
  return fits ? longest : 0;
}

Planner::Planner(const Program& program, const kernels::Table& table, uint64_t tokenizer_bytes,
                 const AdapterNeeds& adapters)
    : program_(program),
      table_(table),
      tokenizer_bytes_(tokenizer_bytes),
      adapters_(adapters),
      order_(weight_order(program, table)) {
  ring_ = residency::minimum_budget(order_.specs, table.row_group);
  max_units_ = units_bytes(residency::make_plan(order_.specs, table.row_group, ring_));
}

Planner::Planner(const Inspection& found)
    : Planner(found.program, *found.table, found.plan.bytes.tokenizer, found.adapters.needs()) {}

uint64_t Planner::size(const EngineOptions& options, MemoryPlan& plan) const {
  size_parts(program_, table_, options.structured_output, plan);
  return plan.fixed() + ring_ + max_units_;
}

bool Planner::fits(const EngineOptions& options, MemoryPlan& plan) const {
  return size(options, plan) <= plan.budget.bytes || plan.budget.bytes == 0;
}

// The context that the caller chose.
Status Planner::check(const EngineOptions& options) const {
  if (options.n_ctx < 0 || options.n_ctx > model::kMaxContext) {
    return error(Code::kInvalidArgument, "a context of %d positions is not between 1 and %lld",
                 options.n_ctx, static_cast<long long>(model::kMaxContext));
  }
  if (options.n_ctx > program_.max_context) {
    return error(Code::kInvalidArgument,
                 "a context of %d positions exceeds the %lld of this model's position embeddings",
                 options.n_ctx, static_cast<long long>(program_.max_context));
  }
  return {};
}

// Context, sessions and the KV cache's layout.
Status Planner::set_sessions(const EngineOptions& options, int32_t n_ctx, MemoryPlan& plan) const {
  plan.kv.types = options.kv;
  plan.context.n_ctx = n_ctx;
  plan.context.from = context_from(program_, options, n_ctx);
  plan.sessions.parallel =
      single_batch(program_) ? 1 : std::clamp(options.parallel, 1, kMaxSessions);
  plan.sessions.n_sessions =
      std::clamp(std::max(options.n_sessions, plan.sessions.parallel), 1, kMaxSessions);
  Result<KvPlan> room =
      plan_room(program_, options.kv_policy, options.kv, n_ctx, options.min_batch);
  if (!room.ok()) return room.status();
  plan.kv.layout = *room;
  SLUICE_RETURN_IF_ERROR(check_kv_types(program_, options.kv, plan.kv.layout));
  plan.sessions.parallel = std::min(plan.sessions.parallel, max_batch(plan.kv.layout));
  plan.context.endless = plan.kv.layout.evicts() && (options.kv_policy.capacity == 0 ||
                                                     options.n_ctx <= plan.kv.layout.positions);
  plan.kv.shape = kv_shape(program_, n_ctx, plan.kv.layout, options.kv);
  plan.kv.shape.on_gpu = options.kv_rows == 0;
  if (options.kv_rows > 0) {
    for (kv::LayerShape& layer : plan.kv.shape.layers) {
      layer.capacity = std::min(layer.capacity, options.kv_rows);
    }
  }
  if (plan.kv.shape.bidirectional && plan.kv.shape.recurrent()) {
    return error(Code::kUnsupportedArchitecture,
                 "the metadata value attention.causal is false, but layers of this \"%s\" model "
                 "are causal",
                 program_.hp.arch.c_str());
  }
  return {};
}

Status Planner::size_minimum(const EngineOptions& options, int32_t n_ctx, MemoryPlan& plan) const {
  plan = {};
  plan.bytes.adapters = adapters_.bytes;
  plan.buffers.adapter_scratch = adapters_.scratch;
  plan.bytes.tokenizer = tokenizer_bytes_;
  plan.budget.bytes = options.memory_budget;
  plan.budget.base = options.base_bytes + program_bytes(program_);
  plan.bytes.reserve = options.reserve;
  plan.threads.n_threads = options.n_threads > 0 ? options.n_threads : default_thread_count();
  plan.threads.own = options.borrows_threads ? 0 : plan.threads.n_threads - 1;
  SLUICE_RETURN_IF_ERROR(check(options));
  SLUICE_RETURN_IF_ERROR(set_sessions(options, n_ctx, plan));
  uint64_t smaller;
  do {  // an endless text grows with the budget, by less than the budget
    smaller = plan.budget.minimum;
    if (plan.context.endless) set_text(std::max<uint64_t>(smaller, 1), plan);
    plan.kv.shape.n_checkpoints =
        options.n_checkpoints >= 0
            ? options.n_checkpoints
            : std::min(kMinCheckpoints, choose_checkpoints(plan.kv.shape, plan.budget.bytes));
    set_draft(program_, options, options.draft_max < 0 ? kMinDraft : options.draft_max, plan);
    plan.batch.n_batch = min_n_batch(program_, options, plan);
    plan.budget.minimum = std::max(smaller, smallest_with_spare(size(options, plan), options));
  } while (plan.context.endless && plan.budget.minimum > smaller);
  return {};
}

size_t Planner::types(EngineOptions options, Types* out, size_t* best) const {
  *best = 0;
  (*out)[0] = options.kv;
  if (!options.kv.automatic) return 1;
  const uint64_t budget = options.memory_budget;
  (*out)[0] = options.kv = {};
  options.memory_budget = 0;  // the context without a budget
  MemoryPlan wanted;
  if (!size_minimum(options, choose_context(program_, table_, options), wanted).ok()) return 1;
  size_t n = 0;
  uint64_t smallest = UINT64_MAX;
  for (const kv::KvType type :
       {kv::KvType::kF16, kv::KvType::kQ8_0, kv::KvType::kQ4_0, kv::KvType::kQ2}) {
    const uint64_t bytes = kv_bytes(program_, wanted, {type, type});
    if (bytes == 0 || bytes >= smallest)
      continue;  // not supported, or not smaller (small head_dim)
    if (budget > 0 && smallest > budget / 4) *best = n;
    smallest = bytes;
    (*out)[n++] = {type, type};
  }
  return n;
}

Status Planner::choose(const EngineOptions& options, Choice& choice, MemoryPlan& plan) const {
  Types all;
  size_t best;
  const size_t n_types = types(options, &all, &best);
  Choice least;
  uint64_t minimum = UINT64_MAX;
  Status status;
  choice = {options};
  // After the best types, the smaller ones, then those that only a short context can have.
  for (size_t i = 0; i < n_types; ++i) {
    choice.options.kv = all[(best + i) % n_types];
    const int32_t min = automatic_context(options) ? min_context(choice.options) : INT32_MAX;
    choice.n_ctx = choose_context(program_, table_, choice.options);
    for (;; choice.n_ctx = shorter_context(choice.n_ctx, min)) {
      status = size_minimum(choice.options, choice.n_ctx, plan);
      if (!status.ok()) break;
      choice.fits = plan.budget.bytes == 0 || plan.budget.minimum <= plan.budget.bytes;
      if (choice.fits) return {};
      if (choice.n_ctx > min) continue;
      if (plan.budget.minimum < minimum) {
        minimum = plan.budget.minimum;
        least = choice;
      }
      break;
    }
  }
  if (least.n_ctx == 0 || n_types == 1) return status;
  choice = least;
  return size_minimum(choice.options, choice.n_ctx, plan);
}

Status Planner::search(const EngineOptions& options, MemoryPlan& plan) const {
  EngineOptions least = options;
  const bool fewer = options.min_threads > 0 && options.min_threads < options.n_threads;
  if (fewer) least.n_threads = options.min_threads;
  Choice choice;
  Status status = choose(options, choice, plan);
  if (fewer && !choice.fits) status = choose(least, choice, plan);
  if (!choice.fits) return status;
  plan.items = {order_.mat_item, order_.vec_item};
  plan.bytes.reserve += spare_of(options, plan.budget.bytes);
  extend(choice.options, plan);
  choose_batch(choice.options, plan);
  const uint64_t records = lay_weights(choice.options, 0, plan);
  plan.bytes.other += cache_rows(choice.options, records, plan);
  if (!options.kv.automatic && !fewer) return {};
  // Other types and fewer threads may need a smaller budget.
  least.memory_budget = 1;
  if (automatic_context(options)) least.n_ctx = choice.n_ctx;
  MemoryPlan smallest;
  status = choose(least, choice, smallest);
  plan.budget.minimum = smallest.budget.minimum;
  return status;
}

void Planner::extend(const EngineOptions& options, MemoryPlan& plan) const {
  if (plan.context.endless) {
    const int32_t n_ctx = plan.context.n_ctx;
    set_text(plan.budget.bytes, plan);
    if (!fits(options, plan)) plan.context.n_ctx = plan.kv.shape.n_ctx = n_ctx;
  }
  if (options.n_checkpoints < 0) {
    const int32_t few = plan.kv.shape.n_checkpoints;
    plan.kv.shape.n_checkpoints = choose_checkpoints(plan.kv.shape, plan.budget.bytes);
    if (!fits(options, plan)) plan.kv.shape.n_checkpoints = few;
  }
  if (options.draft_max < 0) {
    set_draft(program_, options, choose_draft(program_, plan.budget.bytes), plan);
    plan.batch.n_batch = min_n_batch(program_, options, plan);
    if (!fits(options, plan)) set_draft(program_, options, kMinDraft, plan);
  }
}

void Planner::choose_batch(const EngineOptions& options, MemoryPlan& plan) const {
  const int32_t longest = max_batch(plan.kv.layout);
  const int32_t largest = options.n_batch > 0 ? std::min(options.n_batch, longest) : longest;
  const int32_t smallest = min_n_batch(program_, options, plan);
  const int32_t wanted = single_batch(program_)
                             ? plan.context.n_ctx
                             : std::min(plan.context.n_ctx, std::max(smallest, largest));
  for (plan.batch.n_batch = wanted; plan.batch.n_batch > smallest;
       plan.batch.n_batch = std::max(smallest, (plan.batch.n_batch + 1) / 2)) {
    const bool fit = fits(options, plan);
    if (plan.budget.bytes == 0) break;
    if (fit && plan.bytes.activations + plan.bytes.scratch <= plan.budget.bytes / 8) break;
  }
}

// Unit records take memory too, more the smaller the units are. The smallest budget has max_units_
// of them, so the loop ends there at the latest.
uint64_t Planner::lay_weights(const EngineOptions& options, uint64_t records,
                              MemoryPlan& plan) const {
  size(options, plan);
  const uint64_t budget = plan.budget.bytes;
  const uint64_t room = budget == 0 ? UINT64_MAX / 4 : budget - plan.fixed();
  for (;;) {
    plan.weights = residency::make_plan(order_.specs, table_.row_group, room - records);
    const uint64_t needed = std::min(units_bytes(plan.weights), max_units_);
    if (needed <= records) return records;
    records = needed;
  }
}

uint64_t Planner::cache_rows(const EngineOptions& options, uint64_t records,
                             MemoryPlan& plan) const {
  if (plan.budget.bytes == 0) return records;
  const bool resident = plan.weights.streamed_bytes == 0;
  set_cached_rows(program_, plan);
  const bool fit = fits(options, plan);
  if (fit) records = lay_weights(options, records, plan);
  if (!fit || (resident && plan.weights.streamed_bytes > 0)) {
    plan.buffers.cached_rows = {};
    records = lay_weights(options, records, plan);
  }
  return records;
}

Status Planner::least(EngineOptions options, MemoryPlan& plan) const {
  options.memory_budget = 1;
  return search(options, plan);
}

uint64_t Planner::smallest(const EngineOptions& options) const {
  MemoryPlan plan;
  return least(options, plan).ok() ? plan.budget.minimum : 0;
}

Result<MemoryPlan> Planner::plan(const EngineOptions& options) const {
  MemoryPlan plan;
  SLUICE_RETURN_IF_ERROR(search(options, plan));
  if (plan.budget.bytes == 0 || plan.budget.minimum <= plan.budget.bytes) return plan;
  if (plan.bytes.grammar > 0) {
    return error(
        Code::kBudgetTooSmall,
        "a memory budget of %llu bytes is too small for this model with a context of %d: "
        "the smallest that works is %llu bytes, %llu of them for structured output (option "
        "structuredOutput, in C structured_output)",
        static_cast<unsigned long long>(plan.budget.bytes), plan.kv.layout.positions,
        static_cast<unsigned long long>(plan.budget.minimum),
        static_cast<unsigned long long>(plan.bytes.grammar));
  }
  return error(Code::kBudgetTooSmall,
               "a memory budget of %llu bytes is too small for this model with a context of %d: "
               "the smallest that works is %llu bytes",
               static_cast<unsigned long long>(plan.budget.bytes), plan.kv.layout.positions,
               static_cast<unsigned long long>(plan.budget.minimum));
}

Result<MemoryPlan> plan_memory(const Program& program, const kernels::Table& table,
                               uint64_t tokenizer_bytes, const EngineOptions& options,
                               const AdapterNeeds& adapters) {
  return Planner(program, table, tokenizer_bytes, adapters).plan(options);
}

}  // namespace sluice::session
