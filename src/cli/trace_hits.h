// The hit rate that the engine's cache of experts has for a trace of a router's choices, without a
// model: for the speed estimate of `sluice info --expert-trace`.
#pragma once

#include "base/status.h"
#include "cli/expert_trace.h"

namespace sluice::cli {

// Replays a trace in a mixture of `layers` layers with memory for a share of its experts, 0 to 1.
// The layers of the trace repeat if the model has more. At most kMaxReplayed tokens are replayed,
// of which the first quarter, but no more than kWarmup tokens, only fill the cache. Returns the
// share of uses whose expert was in memory. Errors: kOutOfMemory; kInvalidArgument, if the trace
// has no choices in these layers.
inline constexpr size_t kMaxReplayed = 1024, kWarmup = 64;
[[nodiscard]] Result<double> trace_hit_rate(const ExpertTrace& trace, int32_t layers,
                                            double in_memory);

}  // namespace sluice::cli
