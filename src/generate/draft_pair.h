// Splits one memory budget between a model and its draft model. The draft model runs several times
// per forward pass of the model, so it gets enough memory to be fully resident, but at most half of
// the budget. The model gets the rest and streams what does not fit. Opening the files is left to
// the callers: native programs and the browser's binding.
#pragma once

#include "gguf/gguf.h"
#include "session/engine.h"

namespace sluice::generate {

// Options for opening each model. They compute in turns, so the draft model uses the model's
// threads (EngineOptions::pool): threads of its own would have to be woken for each draft token.
struct PairOptions {
  session::EngineOptions model, draft;
  uint64_t minimum = 0;  // bytes: the smallest budget for both
};

// Splits the budget of `options` using both headers, before either model is opened. The base and
// spare bytes of `options` count for the model. The draft model gets no adapters and no grammars,
// one session, and a context no longer than it was trained with. `draft_base`: bytes already taken
// for the draft model. Errors: session::inspect's of either model (the draft model's say so);
// kBudgetTooSmall for both together, naming the smallest budget.
[[nodiscard]] Result<PairOptions> share_budget(const gguf::Header& model,
                                               const session::EngineOptions& options,
                                               const gguf::Header& draft, uint64_t draft_base);

// The draft model's share of `free` bytes, which must be enough for both minimums. `draft_whole`:
// bytes with which the draft model is fully resident.
[[nodiscard]] uint64_t draft_share(uint64_t free, uint64_t model_minimum, uint64_t draft_minimum,
                                   uint64_t draft_whole);

[[nodiscard]] Status pair_too_small(uint64_t budget, uint64_t least);

// Checks that every token id has the same text in both. Errors: kInvalidArgument.
[[nodiscard]] Status check_same_vocabulary(const tokenizer::Tokenizer& model,
                                           const tokenizer::Tokenizer& draft);

// Adds "the draft model: " to an error's message.
[[nodiscard]] Status of_draft(const Status& status);

}  // namespace sluice::generate
