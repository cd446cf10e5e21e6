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

Result<session::MemoryPlan> plan_of(const std::string& path, const LoadOptions& options) {
  Result<ModelHeader> header = read_header(path, options.source);
  if (!header.ok()) return header.status();
  session::EngineOptions engine = options.engine;
  engine.base_bytes += header->held;
  Result<session::Inspection> found = session::inspect(header->header, engine);
  if (!found.ok()) return found.status();
  return std::move(found->plan);
}

Result<uint64_t> split(const std::string& path, const std::string& draft,
                       const LoadOptions& options, const LoadOptions& for_draft) {
  const Result<session::MemoryPlan> model = plan_of(path, options);
  if (!model.ok()) return model.status();
  const Result<session::MemoryPlan> least = plan_of(draft, for_draft);
  if (!least.ok()) return least.status();
  LoadOptions whole = for_draft;
  whole.engine.memory_budget = 0;
  whole.engine.n_ctx = least->n_ctx;
  const Result<session::MemoryPlan> most = plan_of(draft, whole);
  if (!most.ok()) return most.status();
  return draft_share(options.engine.memory_budget, model->minimum, least->minimum, most->total());
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

Result<DraftPair> open_pair(const std::string& path, const std::string& draft,
                            const LoadOptions& options) {
  LoadOptions for_model = options, for_draft = options;
  for_draft.engine.draft_max = 0;
  for_draft.engine.grammars = false;
  if (options.engine.memory_budget > 0) {
    const Result<uint64_t> share = split(path, draft, options, for_draft);
    if (!share.ok()) return share.status();
    for_draft.engine.memory_budget = *share;
    for_model.engine.memory_budget -= *share;
  }
  DraftPair out;
  Result<std::unique_ptr<Model>> model = Model::open(path, for_model);
  if (!model.ok()) return model.status();
  out.model = std::move(*model);
  // They compute in turns: threads of its own would have to be woken for each guess.
  for_draft.engine.pool = &out.model->engine().pool();
  for_draft.engine.n_threads = out.model->engine().plan().n_threads;
  Result<std::unique_ptr<Model>> second = Model::open(draft, for_draft);
  if (!second.ok()) return second.status();
  out.draft = std::move(*second);
  SLUICE_RETURN_IF_ERROR(
      check_same_vocabulary(out.model->engine().tokenizer(), out.draft->engine().tokenizer()));
  return out;
}

}  // namespace sluice::native
