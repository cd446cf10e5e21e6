// Decode steps that follow one another without the caller, for an executor that samples by itself
// (gpu/gpu_executor.h): each step computes the token that the step before has chosen.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::session {

inline constexpr int32_t kMaxQueue = 64;  // steps
inline constexpr int32_t kMaxQueuedTopK = 64;

struct StepQueue {
  // The queue may end after one of these tokens. The caller still has to look for them.
  std::span<const int32_t> stops;
  // Empty: each token is the likeliest. Otherwise temperature, top-k (1 to kMaxQueuedTopK), top-p
  // and min-p of sample::Params, then a number in [0, 1) for each step, to draw its token with. The
  // queue ends where the executor is not certain to draw what sample::Sampler would.
  std::span<const float> sampling;
};

}  // namespace sluice::session
