// An engine without early exit.
#include "approximate/early_exit.h"

namespace sluice::approximate {

Result<std::unique_ptr<session::Approximation>> make_early_exit(const gguf::Header&,
                                                                const session::ExitPolicy& policy,
                                                                bool, int32_t, model::Program*) {
  if (policy.on()) return not_in_build("early exit");
  return std::unique_ptr<session::Approximation>();
}

}  // namespace sluice::approximate
