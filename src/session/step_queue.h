// Decode steps that follow one another without the caller, for an executor that samples by itself
// (gpu/gpu_executor.h): each step computes the token that the step before has chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::session {

inline constexpr int32_t kMaxQueue = 64;  // steps
inline constexpr int32_t kMaxQueuedTopK = 64;
// Numbers of StepQueue::sampling in front of the draws.
inline constexpr size_t kQueueParams = 8;

struct StepQueue {
  // The queue may end after one of these tokens. The caller still has to look for them.
  std::span<const int32_t> stops;
  // Empty: each token is the likeliest. Otherwise temperature, top-k (1 to kMaxQueuedTopK with a
  // temperature), top-p, min-p, repeat, frequency and presence penalty of sample::Params, and the
  // window of the penalties in tokens (0: none of them). Then a number in [0, 1) for each step, to
  // draw its token with. The queue ends where the executor is not certain to choose what
  // sample::Sampler would.
  std::span<const float> sampling;

  [[nodiscard]] int32_t penalty_window() const {
    return sampling.empty() ? 0 : static_cast<int32_t>(sampling[kQueueParams - 1]);
  }
};

}  // namespace sluice::session
