// A model and a smaller one that guesses for it, under one budget. The smaller one gets what keeps
// it in memory whole, because it runs several times for each pass of the other, but at most half of
// the budget; the rest holds weights of the model, which streams what does not fit.
#pragma once

#include "native/model_file.h"

namespace sluice::native {

struct DraftPair {
  std::unique_ptr<Model> model, draft;  // the second computes on the first one's threads
};

// The draft's part of `budget`, where the plans of both say what they need at least and what the
// draft takes whole. Errors: kBudgetTooSmall, naming the smallest budget for both.
[[nodiscard]] Result<uint64_t> draft_share(uint64_t budget, uint64_t model_minimum,
                                           uint64_t draft_minimum, uint64_t draft_whole);

// Opens both; the draft gets neither adapters nor grammars, and one session. Errors: Model::open's
// of either, draft_share's, and kInvalidArgument where the vocabularies differ.
[[nodiscard]] Result<DraftPair> open_pair(ModelHeader model, const std::string& draft,
                                          const session::EngineOptions& options,
                                          const io::OpenOptions& source);
[[nodiscard]] Result<DraftPair> open_pair(const std::string& path, const std::string& draft,
                                          const LoadOptions& options);

}  // namespace sluice::native
