// A model and a smaller one that guesses for it, under one budget. The smaller one gets what keeps
// it in memory whole, because it runs several times for each pass of the other, but at most half of
// the budget; the rest holds weights of the model, which streams what does not fit. Where the files
// come from is a matter of whoever opens the two: native programs and the browser's binding.
#pragma once

#include "gguf/gguf.h"
#include "session/engine.h"

namespace sluice::generate {

// How each of the two is opened. They compute in turns: the draft takes the model's threads
// (EngineOptions::pool), or they would have to be woken for each guess.
struct PairOptions {
  session::EngineOptions model, draft;
  uint64_t minimum = 0;  // the smallest budget for both
};

// Splits the budget of `options`, from both headers, before either is opened. What `options` say is
// taken, and left free, is the model's part; the draft gets neither adapters nor grammars, one
// session, and no longer a context than it has learned. `draft_base`: bytes taken for it already.
// Errors: session::inspect's of either, those of the draft saying so; kBudgetTooSmall for the sum,
// naming the smallest for both.
[[nodiscard]] Result<PairOptions> share_budget(const gguf::Header& model,
                                               const session::EngineOptions& options,
                                               const gguf::Header& draft, uint64_t draft_base);

// The draft's part of what is free, which is enough for both: where their plans say what they need
// at least, and what the draft takes whole.
[[nodiscard]] uint64_t draft_share(uint64_t free, uint64_t model_minimum, uint64_t draft_minimum,
                                   uint64_t draft_whole);

[[nodiscard]] Status pair_too_small(uint64_t budget, uint64_t least);

// Whether every id stands for the same text in both. Errors: kInvalidArgument.
[[nodiscard]] Status check_same_vocabulary(const tokenizer::Tokenizer& model,
                                           const tokenizer::Tokenizer& draft);

// An error of what was done for the draft.
[[nodiscard]] Status of_draft(const Status& status);

}  // namespace sluice::generate
