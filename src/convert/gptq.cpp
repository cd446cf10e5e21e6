// A Cholesky decomposition from the last column to the first, H = R R^T with R upper triangular;
// M and D follow from its columns.
#include "convert/gptq.h"

#include <algorithm>
#include <cmath>

namespace sluice::convert {
namespace {

constexpr uint64_t kOctet = SpanFactors::kOctet;
constexpr double kDamping = 0.1;

uint64_t strict_triangle(uint64_t n) {
  return n * (n - 1) / 2;
}

// An upper triangular matrix, [n][n] by rows.
struct Upper {
  uint64_t n;
  std::vector<double> values;

  explicit Upper(uint64_t size) : n(size), values(size * size) {}
  [[nodiscard]] double* row(uint64_t i) { return values.data() + i * n; }
  [[nodiscard]] const double* row(uint64_t i) const { return values.data() + i * n; }
};

double dot(const double* a, const double* b, uint64_t n) {
  double sums[4] = {};
  uint64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (uint64_t l = 0; l < 4; ++l) sums[l] += a[i + l] * b[i + l];
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

Upper decompose(std::span<const float> triangle, uint64_t n) {
  double trace = 0;
  for (uint64_t i = 0; i < n; ++i) trace += static_cast<double>(triangle[i * (i + 1) / 2 + i]);
  // Without inputs, every column counts equally.
  const double damping = trace > 0 ? kDamping * trace / static_cast<double>(n) : 1;
  Upper r(n);
  for (uint64_t j = n; j-- > 0;) {
    double* const at_j = r.row(j);
    const uint64_t behind = n - j - 1;
    const double own = static_cast<double>(triangle[j * (j + 1) / 2 + j]) + damping;
    // Rounding of the sums may leave less than the damping has added.
    const double left = std::max(own - dot(at_j + j + 1, at_j + j + 1, behind), damping);
    at_j[j] = std::sqrt(left);
    for (uint64_t i = 0; i < j; ++i) {
      double* const at_i = r.row(i);
      const double both = static_cast<double>(triangle[j * (j + 1) / 2 + i]);
      at_i[j] = (both - dot(at_i + j + 1, at_j + j + 1, behind)) / at_j[j];
    }
  }
  return r;
}

void set_octet(const Upper& r, uint64_t first, SpanFactors* out) {
  const uint64_t count = std::min(kOctet, r.n - first);
  double inverse[kOctet][kOctet] = {};  // of R's block, upper triangular
  for (uint64_t j = 0; j < count; ++j) {
    inverse[j][j] = 1 / r.row(first + j)[first + j];
    for (uint64_t i = j; i-- > 0;) {
      double sum = 0;
      for (uint64_t k = i + 1; k <= j; ++k) sum += r.row(first + i)[first + k] * inverse[k][j];
      inverse[i][j] = -sum * inverse[i][i];
    }
  }
  for (uint64_t i = 0; i < count; ++i) {
    const double* const own = r.row(first + i) + first;
    out->octet_weights[first + i] = static_cast<float>(dot(own + i, own + i, count - i));
    float* const to = out->octet_feedback.data() + strict_triangle(first + i);
    for (uint64_t k = 0; k < first; ++k) {
      double sum = 0;
      for (uint64_t j = 0; j <= i; ++j) sum += r.row(k)[first + j] * inverse[j][i];
      to[k] = static_cast<float>(sum);
    }
  }
}

void factorize_span(std::span<const float> triangle, SpanFactors* out) {
  const uint64_t n = out->cols;
  const Upper r = decompose(triangle, n);
  out->feedback.resize(strict_triangle(n));
  out->weights.resize(n);
  out->octet_feedback.resize(strict_triangle(n));
  out->octet_weights.resize(n);
  for (uint64_t i = 0; i < n; ++i) {
    const double own = r.row(i)[i];
    out->weights[i] = static_cast<float>(own * own);
    float* const to = out->feedback.data() + strict_triangle(i);
    for (uint64_t k = 0; k < i; ++k) to[k] = static_cast<float>(r.row(k)[i] / own);
  }
  for (uint64_t first = 0; first < n; first += kOctet) set_octet(r, first, out);
}

}  // namespace

uint64_t SpanFactors::bytes_for(const Hessian& hessian) {
  // Two triangles of floats and a square of doubles for each span.
  return hessian.cols() * hessian.span() * (sizeof(float) + sizeof(double));
}

std::vector<SpanFactors> factorize(const Hessian& hessian, ThreadPool* pool) {
  std::vector<SpanFactors> out(hessian.n_spans());
  pool->parallel_for(static_cast<int64_t>(out.size()), [&](int64_t task, int) {
    const auto index = static_cast<uint64_t>(task);
    SpanFactors& span = out[index];
    span.first = index * hessian.span();
    span.cols = hessian.span_cols(index);
    factorize_span(hessian.triangle(index), &span);
  });
  return out;
}

}  // namespace sluice::convert
