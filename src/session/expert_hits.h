// How often a mixture finds the experts of a token in memory, before a model is loaded. The hit
// rate depends on the router, which no header shows. So it comes from statistics: those of a trace
// that the caller has, or the assumption that experts are drawn at random.
#pragma once

#include "session/planner.h"

namespace sluice::session {

struct ExpertHits {
  double rate = 0;  // share of uses whose expert is in memory, 0 to 1
  const char* from = "uniform";
};

// Bytes that a token reads of weights that are not pinned.
struct StreamedBytes {
  double dense = 0;
  double experts = 0;    // if no expert were in memory; 0: not a mixture
  double in_memory = 1;  // share of the experts' bytes that is pinned

  [[nodiscard]] double per_token(const ExpertHits& hits) const {
    return dense + experts * (1 - hits.rate);
  }
};
[[nodiscard]] StreamedBytes streamed_bytes(const Inspection& found);

// Uniform routing, the worst case: the hit rate is the share of the experts in memory.
[[nodiscard]] inline ExpertHits uniform_hits(double in_memory) {
  return {in_memory, "uniform"};
}

}  // namespace sluice::session
