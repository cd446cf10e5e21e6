// Fits one logistic regression per layer by Newton's method.
#include "measure/early_exit_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sluice::measure {
namespace {

constexpr auto kN = static_cast<size_t>(approximate::kExitFeatures);
constexpr double kNever = -30;  // log odds for layers without an early exit

using Weights = std::array<double, kN>;

double score(const Weights& w, const approximate::ExitFeatures& x) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += w[i] * double{x[i]};
  return sum;
}

// Solves a x = b for a positive definite a; b is replaced by x.
void solve(std::array<Weights, kN> a, Weights* b) {
  for (size_t i = 0; i < kN; ++i) {
    for (size_t row = i + 1; row < kN; ++row) {
      const double by = a[row][i] / a[i][i];
      for (size_t k = i; k < kN; ++k) a[row][k] -= by * a[i][k];
      (*b)[row] -= by * (*b)[i];
    }
  }
  for (size_t i = kN; i-- > 0;) {
    for (size_t k = i + 1; k < kN; ++k) (*b)[i] -= a[i][k] * (*b)[k];
    (*b)[i] /= a[i][i];
  }
}

// Fits on standardized features with L2 regularization, and returns weights for the original
// features. Regularization gives a solution even if a feature is constant or all tokens are
// settled.
Weights fit(const std::vector<approximate::ExitFeatures>& x, const std::vector<uint8_t>& settled) {
  constexpr double kHeldBack = 1;
  constexpr int kSteps = 30;
  const double n = static_cast<double>(x.size());
  Weights mean{}, deviation{}, w{};
  for (const approximate::ExitFeatures& f : x) {
    for (size_t i = 1; i < kN; ++i) mean[i] += double{f[i]} / n;
  }
  for (const approximate::ExitFeatures& f : x) {
    for (size_t i = 1; i < kN; ++i) deviation[i] += std::pow(double{f[i]} - mean[i], 2) / n;
  }
  for (double& d : deviation) d = d > 1e-12 ? std::sqrt(d) : 1;
  for (int step = 0; step < kSteps; ++step) {
    Weights slope{};
    std::array<Weights, kN> curve{};
    for (size_t t = 0; t < x.size(); ++t) {
      Weights z{1};
      double sum = w[0];
      for (size_t i = 1; i < kN; ++i) {
        z[i] = (double{x[t][i]} - mean[i]) / deviation[i];
        sum += w[i] * z[i];
      }
      const double p = 1 / (1 + std::exp(-sum));
      for (size_t i = 0; i < kN; ++i) {
        slope[i] += (settled[t] - p) * z[i];
        for (size_t k = 0; k < kN; ++k) curve[i][k] += p * (1 - p) * z[i] * z[k];
      }
    }
    for (size_t i = 0; i < kN; ++i) {
      slope[i] -= kHeldBack * w[i];
      curve[i][i] += kHeldBack;
    }
    solve(curve, &slope);
    // Limit the step: the quadratic model holds only near the current weights.
    double longest = 0;
    for (const double s : slope) longest = std::max(longest, std::abs(s));
    const double by = longest > 2 ? 2 / longest : 1;
    for (size_t i = 0; i < kN; ++i) w[i] += by * slope[i];
  }
  for (size_t i = 1; i < kN; ++i) {
    w[i] /= deviation[i];
    w[0] -= w[i] * mean[i];
  }
  return w;
}

// AUC: the share of (settled, unsettled) pairs that the score orders correctly.
double told(const Weights& w, const std::vector<approximate::ExitFeatures>& x,
            const std::vector<uint8_t>& settled) {
  std::vector<std::pair<double, uint8_t>> all;
  for (size_t t = 0; t < x.size(); ++t) all.emplace_back(score(w, x[t]), settled[t]);
  std::sort(all.begin(), all.end());
  double others = 0, right = 0, yes = 0;
  for (const auto& [unused, is] : all) {
    others += is == 0;
    yes += is;
    right += is != 0 ? others : 0;
  }
  return others > 0 && yes > 0 ? right / (others * yes) : 0.5;
}

}  // namespace

EarlyExitFit fit_exits(const std::vector<ObservedExit>& seen) {
  EarlyExitFit out;
  for (size_t layer = 0; layer < seen.size(); ++layer) {
    const ObservedExit& at = seen[layer];
    Weights w{kNever};
    if (!at.settled.empty()) {
      out.tokens = at.settled.size();
      ExitValue worth{static_cast<int32_t>(layer)};
      for (const uint8_t is : at.settled) worth.settled += is / static_cast<double>(out.tokens);
      w = fit(at.features, at.settled);
      worth.told = told(w, at.features, at.settled);
      out.layers.push_back(worth);
    }
    for (const double weight : w) out.weights.push_back(static_cast<float>(weight));
  }
  return out;
}

}  // namespace sluice::measure
