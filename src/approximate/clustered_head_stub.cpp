// An engine that multiplies the whole output head.
#include "approximate/clustered_head.h"

namespace sluice::approximate {

Result<std::unique_ptr<session::Approximation>> make_clustered_head(
    const gguf::Header&, const session::ApproximateOptions& options, const kernels::Table&, int32_t,
    model::Program*) {
  if (options.head.needs_clusters()) return not_in_build("the clustered output head");
  return std::unique_ptr<session::Approximation>();
}

}  // namespace sluice::approximate
