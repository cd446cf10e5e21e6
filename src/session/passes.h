// The forward passes of an engine: one at a time, numbered, and timed.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "session/time_breakdown.h"
#include "session/weights.h"

namespace sluice::session {

class Passes {
 public:
  explicit Passes(const Weights& weights) : weights_(weights) {}
  // Begins a pass and returns its number.
  [[nodiscard]] uint64_t begin() {
    under_way_ = true;
    began_ms_ = monotonic_ms();
    times_.begin_pass();
    pins_pending_ = weights_.residency().pins_pending();
    return ++last_;
  }
  void end() {
    under_way_ = false;
    times_.end_pass();
  }
  [[nodiscard]] bool under_way() const { return under_way_; }
  [[nodiscard]] uint64_t last() const { return last_; }
  // Where their time goes, with EngineOptions::time_breakdown.
  [[nodiscard]] TimeBreakdown& times() { return times_; }
  // Milliseconds since the pass began; 0 if it waited for pinned weights, which others will not.
  [[nodiscard]] double ms() const {
    return weights_.residency().pins_pending() == pins_pending_ ? monotonic_ms() - began_ms_ : 0;
  }

 private:
  const Weights& weights_;
  TimeBreakdown times_;
  uint64_t last_ = 0;
  bool under_way_ = false;
  double began_ms_ = 0;
  uint32_t pins_pending_ = 0;  // when the pass began
};

}  // namespace sluice::session
