// Correlated inputs of a matrix, their Hessian, and what errors of weights cost on them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "convert/gptq.h"
#include "convert/hessian.h"

namespace sluice::convert {

inline std::vector<float> normal(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0, 1);
  std::vector<float> x(n);
  for (float& v : x) v = draw(random);
  return x;
}

// Inputs [tokens][cols] of which an eighth of the directions carry most of the power.
inline std::vector<float> correlated(size_t tokens, size_t cols, unsigned seed = 1) {
  const size_t rank = cols / 8;
  const std::vector<float> hidden = normal(tokens * rank, seed);
  const std::vector<float> mix = normal(rank * cols, seed + 1);
  std::vector<float> x = normal(tokens * cols, seed + 2);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t r = 0; r < rank; ++r) {
      const float by = 0.5f * hidden[t * rank + r];
      const float* from = &mix[r * cols];
      float* to = &x[t * cols];
      for (size_t c = 0; c < cols; ++c) to[c] += by * from[c];
    }
  }
  return x;
}

inline Hessian hessian_of(const std::vector<float>& x, size_t cols, size_t span) {
  Hessian out(cols, span);
  ThreadPool pool(1);
  out.add(x.data(), static_cast<int64_t>(cols), static_cast<int32_t>(x.size() / cols), &pool);
  return out;
}
inline std::vector<SpanFactors> factors_of(const Hessian& hessian) {
  ThreadPool pool(1);
  return factorize(hessian, &pool);
}

// A span's Hessian as a square, with the damping of the factors.
inline std::vector<double> square_of(const Hessian& hessian, uint64_t index) {
  const uint64_t n = hessian.span_cols(index);
  const std::span<const float> half = hessian.triangle(index);
  std::vector<double> h(n * n);
  double trace = 0;
  for (uint64_t i = 0; i < n; ++i) {
    for (uint64_t j = 0; j <= i; ++j) h[i * n + j] = h[j * n + i] = half[i * (i + 1) / 2 + j];
    trace += h[i * n + i];
  }
  for (uint64_t i = 0; i < n; ++i) h[i * n + i] += 0.1 * trace / static_cast<double>(n);
  return h;
}

inline double cost_of(const std::vector<double>& h, const float* x, const float* y) {
  const auto n = static_cast<size_t>(std::sqrt(static_cast<double>(h.size())));
  std::vector<double> errors(n);
  for (size_t i = 0; i < n; ++i) errors[i] = static_cast<double>(x[i]) - y[i];
  const double* error = errors.data();
  double cost = 0;
  for (size_t i = 0; i < n; ++i) {
    const double* row = &h[i * n];
    double sum = 0;
    for (size_t j = 0; j < n; ++j) sum += row[j] * error[j];
    cost += sum * error[i];
  }
  return cost;
}

}  // namespace sluice::convert
