// Running estimates of latency and acceptance rate, and the draft length chosen from them.
#include "draft/policy.h"

#include <algorithm>
#include <cmath>

namespace sluice::draft {
namespace {

constexpr double kPerToken = 0.1;  // assumed cost of one more token, as a share of a pass
// Passes after which a latency is measured again: a doubtful one, any other.
constexpr uint32_t kDoubted = 32, kForgotten = 512;
constexpr double kAccident =
    1.1;                          // a first latency above this multiple of the estimate is doubtful
constexpr double kDrift = 0.125;  // share of one size's change that is applied to all sizes
constexpr double kMinGain = 1.03;      // required speed relative to no drafting
constexpr double kTryShare = 0.01;     // share of the time that retries may take
constexpr int32_t kTryPasses = 16;     // passes after which a retry counts as successful
constexpr int32_t kMaxWait = 1 << 14;  // tokens
// Assumed acceptance rate of a source that is not measured, and its weight in draft tokens.
constexpr double kHope = 0.75, kHopeful = 2;
constexpr size_t kFirstDrafts = 2;  // most draft tokens in the first pass of a retry

}  // namespace

bool BatchLatency::known(int32_t tokens) const {
  const Entry& e = entries_[static_cast<size_t>(tokens)];
  return e.ms > 0 && (tokens == 1 || count_ - e.seen < (e.doubtful ? kDoubted : kForgotten));
}

// A pass counts for at most twice the latency known so far, in case it was delayed.
void BatchLatency::note(int32_t tokens, double ms) {
  if (tokens < 1 || tokens > kMaxPass || !(ms > 0)) return;
  Entry& e = entries_[static_cast<size_t>(tokens)];
  if (known(tokens)) {
    const double change = (std::min(ms, 2 * e.ms) / e.ms - 1) / (e.doubtful ? 2 : 4);
    for (Entry& other : entries_) other.ms *= 1 + change * kDrift;
    e.ms *= (1 + change) / (1 + change * kDrift);
    e.doubtful = false;
  } else {
    const double expected = count_ > 0 && tokens > 1 ? estimate(tokens) : ms;
    e.doubtful = !e.doubtful && ms > kAccident * expected;
    e.ms = std::min(ms, 2 * expected);
  }
  e.seen = ++count_;
}

double BatchLatency::estimate(int32_t tokens) const {
  tokens = std::clamp(tokens, 1, kMaxPass);
  int32_t below = 0, above = 0, least = 0;
  double most = INFINITY;  // upper bound: a longer pass never takes less time
  for (int32_t n = 1; n <= kMaxPass; ++n) {
    if (!known(n)) continue;
    if (least == 0) least = n;
    if (n <= tokens) below = n;
    if (n >= tokens && above == 0) above = n;
    if (n >= tokens) most = std::min(most, entries_[static_cast<size_t>(n)].ms);
  }
  const auto ms = [this](int32_t n) { return entries_[static_cast<size_t>(n)].ms; };
  if (least == 0) return 1 + kPerToken * (tokens - 1);
  double each = kPerToken * ms(least) / (1 + kPerToken * (least - 1));
  if (below > least) each = std::max((ms(below) - ms(least)) / (below - least), each / 16);
  if (below == 0) return std::max(ms(above) - each * (above - tokens), each);
  if (above == 0) return ms(below) + each * (tokens - below);
  if (above == below) return std::min(ms(below), most);
  const double share = static_cast<double>(tokens - below) / (above - below);
  return std::min(ms(below) + share * (ms(above) - ms(below)), most);
}

int32_t AcceptanceStats::of_match(int32_t length) {
  constexpr int32_t kFrom[kLevels] = {0, 3, 4, 5, 7, 11, 21, 41};
  int32_t level = 0;
  while (level + 1 < kLevels && length >= kFrom[level + 1]) ++level;
  return level;
}

int32_t AcceptanceStats::of_probability(double p) {
  if (!(p > 0)) return 0;  // NaN, too
  return static_cast<int32_t>(std::min(p * kLevels, kLevels - 1.0));
}

AcceptanceStats::AcceptanceStats() {
  for (int32_t i = 0; i < kLevels; ++i) {
    counts_[static_cast<size_t>(i)] = {2 * (0.2 + 0.1 * i), 2};
  }
  counts_[kAny] = {kHope * kHopeful, kHopeful};
}

void AcceptanceStats::count(int32_t level, bool right) {
  constexpr double kKept = 0.96;
  Count& c = counts_[static_cast<size_t>(level)];
  c.right = c.right * kKept + (right ? 1 : 0);
  c.all = c.all * kKept + 1;
}

void AcceptanceStats::note(int32_t level, bool right) {
  count(level, right);
  count(kAny, right);
}

void AcceptanceStats::settle() {
  for (Count& c : counts_) {
    const double kept = std::min(1.0, kHopeful / c.all);
    c = {c.right * kept, c.all * kept};
  }
}

void AcceptanceStats::hope() {
  settle();
  Count& any = counts_[kAny];
  any.right = std::max(any.right, kHope * any.all);
}

Choice best_length(const BatchLatency& costs, std::span<const double> chances,
                   const Setting& setting) {
  const double single = costs.estimate(1);
  const int32_t without = setting.upcoming + setting.beside;
  double said = 1 + setting.beside;
  Choice best{0, said / costs.estimate(without)};
  double least = kMinGain * best.rate;
  double all_right = 1;
  for (size_t i = 0; i < chances.size(); ++i) {
    all_right *= chances[i];
    said += all_right;
    const int32_t n = static_cast<int32_t>(i) + 1;
    double ms = costs.estimate(without + n) + setting.setup_ms + setting.each_ms * n;
    if (setting.redone) {
      const int32_t again = without + static_cast<int32_t>(std::ceil(said)) - setting.beside;
      ms += (1 - all_right) * std::max(0.0, costs.estimate(again) - single);
    }
    if (said / ms <= least) continue;
    least = said / ms;
    best = {n, least};
  }
  return best;
}

Choice Attempts::plan(const BatchLatency& costs, AcceptanceStats& trust, std::span<double> chances,
                      const Setting& setting, int32_t said) {
  const auto choose = [&] {
    const auto likely =
        passes_ == 1 && chances.size() > kFirstDrafts ? chances.first(kFirstDrafts) : chances;
    std::fill(likely.begin(), likely.end(), trust.chance(AcceptanceStats::kAny));
    return best_length(costs, likely, setting);
  };
  const Choice best = choose();
  if (best.length > 0) {
    if (passes_ > 0 && ++passes_ > kTryPasses) *this = {}, passes_ = 0;
    idle_ = 0;
    return best;
  }
  if (passes_ > 0) wait_ = std::min(2 * wait_, kMaxWait);
  passes_ = 0;
  idle_ += said;
  const double single = costs.estimate(1);
  const double ms = setting.late_ms + 2 * (setting.each_ms + costs.estimate(2) - single);
  if (idle_ < wait_ || idle_ * single * kTryShare < ms) return best;
  idle_ = 0;
  passes_ = 1;
  trust.hope();
  return choose();
}

}  // namespace sluice::draft
