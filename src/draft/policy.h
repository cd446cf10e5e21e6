// Chooses how many draft tokens a forward pass checks, so that speculative decoding saves time. It
// uses two running measurements: the latency of passes by batch size on this machine, and the
// acceptance rate of each kind of draft token, whether checked or not. They affect only the time,
// never the tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace sluice::draft {

inline constexpr int32_t kMaxDraftTokens = 31;                  // checked in one pass
inline constexpr int32_t kMaxPass = 2 * (kMaxDraftTokens + 1);  // tokens, recomputed ones included

// Latency of forward passes in milliseconds, by their number of tokens.
class BatchLatency {
 public:
  void note(int32_t tokens, double ms);
  // Estimate for a pass of `tokens`: measured, interpolated or extrapolated. A relative cost (1 for
  // one token) while nothing is measured.
  [[nodiscard]] double estimate(int32_t tokens) const;
  [[nodiscard]] bool measured() const { return count_ > 0; }
  [[nodiscard]] bool known(int32_t tokens) const;
  void clear() { *this = {}; }

 private:
  struct Entry {
    double ms = 0;  // running average; 0: never measured
    uint32_t seen = 0;
    bool doubtful = false;  // measured once, and higher than the other sizes suggest
  };
  std::array<Entry, kMaxPass + 1> entries_;  // by tokens
  uint32_t count_ = 0;
};

// Acceptance rate of draft tokens, by level of confidence.
class AcceptanceStats {
 public:
  static constexpr int32_t kLevels = 8;
  static constexpr int32_t kAny = kLevels;  // all levels together, for tokens not drafted yet
  // The level of a draft token after an n-gram match of `length` tokens.
  [[nodiscard]] static int32_t of_match(int32_t length);
  // The level of a draft token to which the draft model gives probability p.
  [[nodiscard]] static int32_t of_probability(double p);

  AcceptanceStats();
  void note(int32_t level, bool right);
  [[nodiscard]] double chance(int32_t level) const {
    const Count& c = counts_[static_cast<size_t>(level)];
    return c.right / c.all;
  }
  // Another text begins: keeps the rates, but lowers their weight below the next few draft tokens.
  void settle();
  // The same, and raises the rate of kAny to an optimistic one.
  void hope();

 private:
  struct Count {
    double right, all;
  };
  void count(int32_t level, bool right);
  std::array<Count, kLevels + 1> counts_;
};

// The circumstances in which a draft length is chosen.
struct Setting {
  int32_t upcoming = 1;  // tokens that the pass computes anyway
  int32_t beside = 0;    // other generations in the same pass, one token each
  bool redone = false;   // accepted tokens are recomputed after a rejected one (recurrent states)
  double setup_ms = 0;   // cost before the first draft token
  double each_ms = 0;    // cost of making each draft token
  double late_ms = 0;    // one-time cost of drafting again after a pause
};

struct Choice {
  int32_t length = 0;
  double rate = 0;  // expected tokens per millisecond with this length
};

// Chooses how many draft tokens to check so that the expected tokens per millisecond are highest.
// chances[i]: probability that token i is right if all before it are. 0 if drafting would gain less
// than a few percent.
[[nodiscard]] Choice best_length(const BatchLatency& costs, std::span<const double> chances,
                                 const Setting& setting);

// Decides when to use a draft source that costs time. It is used while it speeds up decoding.
// Otherwise it is retried with exponential backoff, and a retry may cost at most 1 % of the time
// since the last one. A retry continues until a few draft tokens turn out to be unprofitable.
class Attempts {
 public:
  // Call before a pass: how many draft tokens to make, at most chances.size(). `chances` is
  // scratch. `said`: tokens generated since the last call. Calls trust.hope() when a retry begins.
  [[nodiscard]] Choice plan(const BatchLatency& costs, AcceptanceStats& trust,
                            std::span<double> chances, const Setting& setting, int32_t said);

 private:
  int32_t wait_ = 16;   // tokens before the next retry
  int32_t idle_ = 0;    // tokens since the last draft
  int32_t passes_ = 1;  // passes of the retry under way; 0: none is, the source is on or off
};

// Statistics of one draft source. Kept across generations.
struct DraftState {
  AcceptanceStats trust;
  Attempts attempts;
};

}  // namespace sluice::draft
