// Opens a model and its draft model within one budget (generate/draft_pair.h), from files, URLs or
// Hugging Face directories.
#pragma once

#include "native/model_file.h"

namespace sluice::native {

struct DraftPair {
  std::unique_ptr<Model> model, draft;  // the draft model uses the model's threads
  uint64_t minimum = 0;                 // bytes: the smallest budget for both, for this context
};

// Opens both. Errors: those of read_header and Model::open for either model,
// generate::share_budget's, and kInvalidArgument if the vocabularies differ.
[[nodiscard]] Result<DraftPair> open_pair(ModelHeader model, const std::string& draft,
                                          const session::EngineOptions& options,
                                          const io::OpenOptions& source);
[[nodiscard]] Result<DraftPair> open_pair(const std::string& path, const std::string& draft,
                                          const LoadOptions& options);

}  // namespace sluice::native
