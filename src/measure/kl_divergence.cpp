// Distances between model outputs, summed in double precision.
#include "measure/kl_divergence.h"

#include <algorithm>
#include <cmath>

namespace sluice::measure {
namespace {

constexpr float kUnlikely = -25;  // log probability below which a token is ignored

}  // namespace

double log_of_sum(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return top + std::log(sum);
}

double divergence(std::span<const float> p, std::span<const float> q) {
  const double log_p = log_of_sum(p), log_q = log_of_sum(q);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double a = static_cast<double>(p[i]) - log_p, b = static_cast<double>(q[i]) - log_q;
    sum += std::exp(a) * (a - b);
  }
  return sum;
}

void to_log_probabilities(std::span<float> row) {
  const float top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float x : row) sum += std::exp(x - top);
  const auto log = static_cast<float>(std::log(sum)) + top;
  for (float& x : row) x -= log;
}

double divergence_from(std::span<const float> log_p, std::span<const float> logits) {
  double mean = 0, p_sum = 0;
  for (size_t i = 0; i < log_p.size(); ++i) {
    if (log_p[i] < kUnlikely) continue;
    const double p = std::exp(log_p[i]);
    p_sum += p;
    mean += p * (static_cast<double>(logits[i]) - log_p[i]);
  }
  mean /= p_sum;
  double sum = 0;
  for (size_t i = 0; i < log_p.size(); ++i) {
    if (log_p[i] < kUnlikely) continue;
    const double d = static_cast<double>(logits[i]) - log_p[i] - mean;
    sum += std::exp(log_p[i]) * (std::expm1(d) - d);
  }
  return std::log1p(std::max(0.0, sum / p_sum));
}

double share_of_change(std::span<const float> whole, std::span<const float> made) {
  double error = 0, power = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    error += std::pow(static_cast<double>(whole[i]) - made[i], 2);
    power += std::pow(static_cast<double>(whole[i]), 2);
  }
  return power > 0 ? error / power : 0;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
    ab += static_cast<double>(a[i]) * b[i];
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1;
}

}  // namespace sluice::measure
