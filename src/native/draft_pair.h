// A model and a smaller one that guesses for it, under one budget (generate/draft_pair.h), from
// wherever native programs read models.
#pragma once

#include "native/model_file.h"

namespace sluice::native {

struct DraftPair {
  std::unique_ptr<Model> model, draft;  // the second computes on the first one's threads
};

// Opens both. Errors: read_header's and Model::open's of either, generate::share_budget's, and
// kInvalidArgument where the vocabularies differ.
[[nodiscard]] Result<DraftPair> open_pair(ModelHeader model, const std::string& draft,
                                          const session::EngineOptions& options,
                                          const io::OpenOptions& source);
[[nodiscard]] Result<DraftPair> open_pair(const std::string& path, const std::string& draft,
                                          const LoadOptions& options);

}  // namespace sluice::native
