#include "cli/layers.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace sluice::cli {
namespace {

double log_of_sum(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return top + std::log(sum);
}

}  // namespace

double divergence(std::span<const float> p, std::span<const float> q) {
  const double log_p = log_of_sum(p), log_q = log_of_sum(q);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double a = static_cast<double>(p[i]) - log_p, b = static_cast<double>(q[i]) - log_q;
    sum += std::exp(a) * (a - b);
  }
  return sum;
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

std::vector<float> importance_of(const std::vector<LayerWorth>& layers) {
  std::vector<float> out;
  for (const LayerWorth& l : layers) {
    out.push_back(l.divergence < 0 ? FLT_MAX : static_cast<float>(l.divergence));
  }
  return out;
}

}  // namespace sluice::cli
