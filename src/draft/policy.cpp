// Running estimates, and the choice that follows from them.
#include "draft/policy.h"

#include <algorithm>
#include <cmath>

namespace sluice::draft {
namespace {

constexpr double kPerToken = 0.1;     // of a pass: what one more token is taken for, unmeasured
constexpr uint32_t kForgotten = 512;  // passes after which a figure is measured anew
constexpr double kLeastGain = 1.03;

}  // namespace

bool PassCosts::known(int32_t tokens) const {
  const Entry& e = entries_[static_cast<size_t>(tokens)];
  return e.ms > 0 && (tokens == 1 || count_ - e.seen < kForgotten);
}

// One pass that was held up does not count for more than twice what was known.
void PassCosts::note(int32_t tokens, double ms) {
  if (tokens < 1 || tokens > kMostPass || !(ms > 0)) return;
  Entry& e = entries_[static_cast<size_t>(tokens)];
  const bool before = known(tokens);
  e.ms = before ? e.ms + (std::min(ms, 2 * e.ms) - e.ms) / 4 : ms;
  e.seen = ++count_;
}

double PassCosts::estimate(int32_t tokens) const {
  tokens = std::clamp(tokens, 1, kMostPass);
  int32_t below = 0, above = 0, least = 0;
  double most = INFINITY;  // a longer pass costs no less
  for (int32_t n = 1; n <= kMostPass; ++n) {
    if (!known(n)) continue;
    if (least == 0) least = n;
    if (n <= tokens) below = n;
    if (n >= tokens && above == 0) above = n;
    if (n >= tokens) most = std::min(most, entries_[static_cast<size_t>(n)].ms);
  }
  const auto ms = [this](int32_t n) { return entries_[static_cast<size_t>(n)].ms; };
  if (least == 0) return 1 + kPerToken * (tokens - 1);
  const double each = kPerToken * ms(least) / (1 + kPerToken * (least - 1));
  if (below == 0) return std::max(ms(above) - each * (above - tokens), each);
  if (above == 0) return ms(below) + each * (tokens - below);
  if (above == below) return std::min(ms(below), most);
  const double share = static_cast<double>(tokens - below) / (above - below);
  return std::min(ms(below) + share * (ms(above) - ms(below)), most);
}

int32_t Trust::of_match(int32_t length) {
  constexpr int32_t kFrom[kLevels] = {0, 3, 4, 5, 7, 11, 21, 41};
  int32_t level = 0;
  while (level + 1 < kLevels && length >= kFrom[level + 1]) ++level;
  return level;
}

int32_t Trust::of_probability(double p) {
  return std::clamp(static_cast<int32_t>(p * kLevels), 0, kLevels - 1);
}

Trust::Trust() {
  for (int32_t i = 0; i < kLevels; ++i) {
    counts_[static_cast<size_t>(i)] = {2 * (0.2 + 0.1 * i), 2};
  }
}

void Trust::note(int32_t level, bool right) {
  constexpr double kKept = 0.96;
  Count& c = counts_[static_cast<size_t>(level)];
  c.right = c.right * kKept + (right ? 1 : 0);
  c.all = c.all * kKept + 1;
}

int32_t best_length(const PassCosts& costs, std::span<const double> chances,
                    const Setting& setting) {
  const double single = costs.estimate(1);
  double best = kLeastGain / costs.estimate(setting.upcoming);
  int32_t length = 0;
  double all_right = 1, said = 1;
  for (size_t i = 0; i < chances.size(); ++i) {
    all_right *= chances[i];
    said += all_right;
    const int32_t n = static_cast<int32_t>(i) + 1;
    double ms = costs.estimate(setting.upcoming + n) + setting.each_ms * n;
    if (setting.redone) {
      const int32_t again = setting.upcoming + static_cast<int32_t>(std::ceil(said));
      ms += (1 - all_right) * std::max(0.0, costs.estimate(again) - single);
    }
    if (said / ms > best) {
      best = said / ms;
      length = n;
    }
  }
  return length;
}

}  // namespace sluice::draft
