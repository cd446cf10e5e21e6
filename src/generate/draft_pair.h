// Splits one memory budget between a model and its draft model. The draft model runs several times
// per forward pass of the model, so it gets enough memory to be fully resident, but at most half of
// the budget. The model gets the rest and streams what does not fit. Opening the files is left to
// the callers: native programs and the browser's binding.
#pragma once

#include <optional>

#include "gguf/gguf.h"
#include "session/report.h"

namespace sluice::generate {

// Options for opening each model. They compute in turns, so the draft model uses the model's
// threads (EngineOptions::pool): threads of its own would have to be woken for each draft token.
struct PairOptions {
  session::EngineOptions model, draft;
  uint64_t minimum = 0;  // bytes: the smallest budget for both, for the same context
};

// Plans both models for several options.
class PairPlanner final : public session::BudgetRule {
 public:
  // Keeps none of the arguments. `options` name what the programs depend on; the base and spare
  // bytes count for the model. `draft_base`: bytes already taken for the draft model.
  PairPlanner(const gguf::Header& model, const session::EngineOptions& options,
              const gguf::Header& draft, uint64_t draft_base);
  PairPlanner(const PairPlanner&) = delete;
  PairPlanner& operator=(const PairPlanner&) = delete;
  ~PairPlanner();
  // Check first. Errors: session::inspect's of either model (the draft model's say so).
  [[nodiscard]] Status status() const;
  // Splits the budget. The draft model gets no adapters and no grammars, one session, and a context
  // no longer than it was trained with. Errors: kBudgetTooSmall for both together, naming the
  // smallest budget.
  [[nodiscard]] Result<PairOptions> share(const session::EngineOptions& given) const;
  // The smallest budget with which share() succeeds; 0: none.
  [[nodiscard]] uint64_t smallest(const session::EngineOptions& options) const override;
  [[nodiscard]] const session::Planner& plan_draft() const { return *plan_draft_; }

 private:
  struct Least {
    session::MemoryPlan model, draft;  // Planner::least of each
  };
  [[nodiscard]] Status least(session::EngineOptions options, Least* out) const;
  // `n_ctx`: the model's.
  [[nodiscard]] session::EngineOptions draft_options(const session::EngineOptions& options,
                                                     int32_t n_ctx) const;

  uint64_t draft_base_;
  Result<session::Inspection> model_, draft_;
  std::optional<session::Planner> plan_model_, plan_draft_;  // of these
};

// PairPlanner's share(), once, before either model is opened.
[[nodiscard]] Result<PairOptions> share_budget(const gguf::Header& model,
                                               const session::EngineOptions& options,
                                               const gguf::Header& draft, uint64_t draft_base);

// The draft model's share of `free` bytes, which must be enough for both minimums. `draft_whole`:
// bytes with which the draft model is fully resident.
[[nodiscard]] uint64_t draft_share(uint64_t free, uint64_t model_minimum, uint64_t draft_minimum,
                                   uint64_t draft_whole);

[[nodiscard]] Status pair_too_small(uint64_t budget, uint64_t least);

// Plans a model, with a draft model (null: none) in the same budget, and reports both: all that
// session/report.h has but the speed. `draft_base`: as in PairPlanner. Errors: session::inspect's
// and PairPlanner's.
[[nodiscard]] Result<session::Inspection> inspect(const gguf::Header& model,
                                                  const session::EngineOptions& options,
                                                  const gguf::Header* draft, uint64_t draft_base,
                                                  const session::ReportSink& sink);

// Checks that every token id has the same text in both. Errors: kInvalidArgument.
[[nodiscard]] Status check_same_vocabulary(const tokenizer::Tokenizer& model,
                                           const tokenizer::Tokenizer& draft);

// Adds "the draft model: " to an error's message.
[[nodiscard]] Status of_draft(const Status& status);

}  // namespace sluice::generate
