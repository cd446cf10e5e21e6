// Where the time of forward passes goes. A stopwatch that charges every moment of a pass to one
// part, so the parts add up to the time of the passes. It reads the clock once per operation, and
// not at all unless EngineOptions::time_breakdown asks for it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "model/program.h"

namespace sluice::session {

enum class TimePart : uint8_t {
  kWait,         // for bytes of weights, and reading them
  kDecompress,   // compressed QSF layers, by compute threads
  kProjections,  // matrix multiplications before and after attention, or of recurrent layers
  kFeedForward,  // matrix multiplications of dense feed-forward networks
  kExperts,      // mixtures of experts: routers, experts and shared experts
  kOutput,       // matrix multiplications of the output head, or of a head behind pooling
  kAttention,    // over the KV cache, with RoPE; recurrences
  kGpu,          // operations that WebGPU runs
  kOther,        // the rest: norms, activations, embeddings, packing, pauses between steps
  kCount,
};
inline constexpr size_t kTimeParts = static_cast<size_t>(TimePart::kCount);
// Their names in reports.
inline constexpr std::array<const char*, kTimeParts> kTimePartNames = {
    "wait", "decompress", "attentionProjections", "ffn", "experts", "output", "attention",
    "gpu",  "other"};

[[nodiscard]] TimePart part_of(const model::Program& program, const model::Op& op);

// Milliseconds.
struct TimeSums {
  std::array<double, kTimeParts> parts{};
  double total = 0;  // of the passes, from two readings of the clock each

  [[nodiscard]] double operator[](TimePart part) const { return parts[static_cast<size_t>(part)]; }
  [[nodiscard]] TimeSums since(const TimeSums& before) const {
    TimeSums out = *this;
    for (size_t i = 0; i < kTimeParts; ++i) out.parts[i] -= before.parts[i];
    out.total -= before.total;
    return out;
  }
  void add(const TimeSums& more) {
    for (size_t i = 0; i < kTimeParts; ++i) parts[i] += more.parts[i];
    total += more.total;
  }
};

class TimeBreakdown {
 public:
  // Measures the passes that begin from now on, or none.
  void measure(bool on) { on_ = on; }
  [[nodiscard]] bool on() const { return on_; }
  // Whether the running pass is measured.
  [[nodiscard]] bool running() const { return running_; }
  // Of the passes that have ended, and of the running one so far.
  [[nodiscard]] const TimeSums& sums() const { return sums_; }

  void begin_pass() {
    end_pass();
    if (!on_) return;
    running_ = true;
    began_ = mark_ = monotonic_ms();
    part_ = TimePart::kOther;
  }
  void end_pass() {
    if (!running_) return;
    enter(TimePart::kOther);
    sums_.total += mark_ - began_;
    running_ = false;
  }
  // From now on, time belongs to `part`.
  void enter(TimePart part) {
    if (!running_) return;
    const double now = monotonic_ms();
    sums_.parts[static_cast<size_t>(part_)] += now - mark_;
    mark_ = now;
    part_ = part;
  }
  void enter(const model::Program& program, const model::Op& op) {
    if (running_) enter(part_of(program, op));
  }
  // Of the time that is not charged yet, `ms` belonged to `part`; of shorter time all.
  void share(TimePart part, double ms) {
    if (!running_) return;
    const double taken = std::min(ms, monotonic_ms() - mark_);
    sums_.parts[static_cast<size_t>(part)] += taken;
    mark_ += taken;
  }
  // The same for reads of weights by `threads` threads together, in nanoseconds summed over them.
  void share_reads(uint64_t reading, uint64_t decompressing, int threads) {
    const double per_ms = 1e6 * threads;
    share(TimePart::kDecompress, static_cast<double>(decompressing) / per_ms);
    if (reading > decompressing) {
      share(TimePart::kWait, static_cast<double>(reading - decompressing) / per_ms);
    }
  }

 private:
  bool on_ = false, running_ = false;
  TimePart part_ = TimePart::kOther;
  double began_ = 0, mark_ = 0;
  TimeSums sums_;
};

}  // namespace sluice::session
