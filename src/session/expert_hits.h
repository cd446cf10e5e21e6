// How often a mixture finds the experts of a token in memory, before a model is loaded. The hit
// rate depends on the router, which no header shows. It is that of a trace that the caller has, or
// the share of the experts in memory, as if experts were drawn at random.
#pragma once

#include "session/planner.h"

namespace sluice::session {

// Bytes that a token reads of weights that are not pinned.
struct StreamedBytes {
  double dense = 0;
  double experts = 0;    // if no expert were in memory; 0: not a mixture
  double in_memory = 1;  // share of the experts' bytes that is pinned

  // `hit_rate`: share of uses whose expert is in memory, 0 to 1.
  [[nodiscard]] double per_token(double hit_rate) const { return dense + experts * (1 - hit_rate); }
};
[[nodiscard]] StreamedBytes streamed_bytes(const Inspection& found);

}  // namespace sluice::session
