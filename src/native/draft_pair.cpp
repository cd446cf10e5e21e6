// The split of the budget, from both headers, before either is opened.
#include "native/draft_pair.h"

#include <algorithm>

namespace sluice::native {
namespace {

// Whether every id stands for the same text in both.
Status check_same_vocabulary(const tokenizer::Tokenizer& model, const tokenizer::Tokenizer& draft) {
  if (model.n_vocab() != draft.n_vocab()) {
    return error(Code::kInvalidArgument,
                 "the draft model has another vocabulary: %d tokens, but the model has %d",
                 draft.n_vocab(), model.n_vocab());
  }
  for (session::Token id = 0; id < model.n_vocab(); ++id) {
    if (model.piece(id) != draft.piece(id)) {
      return error(Code::kInvalidArgument,
                   "the draft model has another vocabulary: its token %d is not the model's", id);
    }
  }
  return {};
}

Result<session::MemoryPlan> plan_of(const ModelHeader& model, session::EngineOptions options) {
  options.base_bytes += model.held;
  Result<session::Inspection> found = session::inspect(model.header, options);
  if (!found.ok()) return found.status();
  return std::move(found->plan);
}

Result<uint64_t> split(const ModelHeader& model, const session::EngineOptions& options,
                       const ModelHeader& draft, const session::EngineOptions& for_draft) {
  const Result<session::MemoryPlan> plan = plan_of(model, options);
  if (!plan.ok()) return plan.status();
  const Result<session::MemoryPlan> least = plan_of(draft, for_draft);
  if (!least.ok()) return least.status();
  session::EngineOptions whole = for_draft;
  whole.memory_budget = 0;
  whole.n_ctx = least->n_ctx;
  const Result<session::MemoryPlan> most = plan_of(draft, whole);
  if (!most.ok()) return most.status();
  return draft_share(options.memory_budget, plan->minimum, least->minimum, most->total());
}

}  // namespace

Result<uint64_t> draft_share(uint64_t budget, uint64_t model_minimum, uint64_t draft_minimum,
                             uint64_t draft_whole) {
  if (budget < model_minimum || budget - model_minimum < draft_minimum) {
    return error(Code::kBudgetTooSmall,
                 "a memory budget of %llu bytes is too small for the model and its draft: the "
                 "smallest that works is %llu bytes",
                 static_cast<unsigned long long>(budget),
                 static_cast<unsigned long long>(model_minimum + draft_minimum));
  }
  const uint64_t wanted = std::min(draft_whole, std::max(draft_minimum, budget / 2));
  return std::min(wanted, budget - model_minimum);
}

Result<DraftPair> open_pair(ModelHeader model, const std::string& draft,
                            const session::EngineOptions& options, const io::OpenOptions& source) {
  Result<ModelHeader> smaller = read_header(draft, source);
  if (!smaller.ok()) return smaller.status();
  session::EngineOptions for_model = options, for_draft = options;
  for_draft.draft_max = 0;
  for_draft.nextn = false;
  for_draft.grammars = false;
  for_draft.adapters = {};
  for_draft.quality = 1;
  for_draft.exits = {};
  for_draft.head.kind = model::HeadPolicy::Kind::kWhole;
  for_draft.n_sessions = for_draft.parallel = for_draft.logits_rows = 1;
  if (options.memory_budget > 0) {
    const Result<uint64_t> share = split(model, options, *smaller, for_draft);
    if (!share.ok()) return share.status();
    for_draft.memory_budget = *share;
    for_model.memory_budget -= *share;
  }
  DraftPair out;
  Result<std::unique_ptr<Model>> first = Model::open(std::move(model), for_model);
  if (!first.ok()) return first.status();
  out.model = std::move(*first);
  // They compute in turns: threads of its own would have to be woken for each guess.
  for_draft.pool = &out.model->engine().pool();
  for_draft.n_threads = out.model->engine().plan().n_threads;
  Result<std::unique_ptr<Model>> second = Model::open(std::move(*smaller), for_draft);
  if (!second.ok()) return second.status();
  out.draft = std::move(*second);
  SLUICE_RETURN_IF_ERROR(
      check_same_vocabulary(out.model->engine().tokenizer(), out.draft->engine().tokenizer()));
  return out;
}

Result<DraftPair> open_pair(const std::string& path, const std::string& draft,
                            const LoadOptions& options) {
  Result<ModelHeader> header = read_header(path, options.source);
  if (!header.ok()) return header.status();
  if (options.on_header) options.on_header(header->header);
  const Result<AdapterFiles> adapters = AdapterFiles::open(options.adapters, options.source);
  if (!adapters.ok()) return adapters.status();
  session::EngineOptions engine = options.engine;
  engine.adapters = adapters->sources();
  return open_pair(std::move(*header), draft, engine, options.source);
}

}  // namespace sluice::native
