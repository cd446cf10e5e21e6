// For an engine without approximate modes.
#include "gguf/embedding_clusters.h"
#include "session/memory_plan.h"

namespace sluice::session {

Status approximate(const gguf::Header& header, const EngineOptions& options, const kernels::Table&,
                   model::Program*, Approximations*) {
  const ApproximateOptions& wanted = options.approximate;
  const char* missing = wanted.skip_layers_ratio != 0 || !wanted.skip.empty() ? "layer skipping"
                        : wanted.exits.on()                                   ? "early exit"
                        : wanted.head.needs_clusters() ? "the clustered output head"
                        : header.find_tensor(gguf::kEmbeddingRest) != nullptr
                            ? "the clustered embedding"
                            : nullptr;
  if (missing == nullptr) return {};
  return not_in_build(missing);
}

}  // namespace sluice::session
