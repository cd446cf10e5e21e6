// Vector functions and attention as their papers write them, in double, without optimizations:
// softmax subtracts the maximum first, attention builds the whole row of scores.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference.h"

namespace sluice::kernels::reference {

double silu(double x) {
  return x / (1 + std::exp(-x));
}

double gelu_tanh(double x) {
  constexpr double kSqrt2OverPi = 0.79788456080286535588;
  return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}

double gelu_erf(double x) {
  return 0.5 * x * std::erfc(-x * 0.70710678118654752440);
}

double xielu(double x, const Xielu& by) {
  const double bent =
      x > 0 ? by.positive * x * x : by.negative * (std::expm1(std::fmin(x, double{by.below})) - x);
  return bent + by.linear * x;
}

void rms_norm(const float* x, const float* weight, double eps, int64_t n, double* out) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += double{x[i]} * double{x[i]};
  const double root = std::sqrt(squares / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] / root * (weight != nullptr ? weight[i] : 1.0f);
}

void layer_norm(const float* x, const float* weight, const float* bias, double eps, int64_t n,
                double* out) {
  double mean = 0;
  for (int64_t i = 0; i < n; ++i) mean += x[i];
  mean /= static_cast<double>(n);
  double variance = 0;
  for (int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const double root = std::sqrt(variance / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = (x[i] - mean) / root * (weight != nullptr ? weight[i] : 1.0f) +
             (bias != nullptr ? bias[i] : 0.0f);
  }
}

void l2_norm(const float* x, double scale, double eps, int64_t n, double* out) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += double{x[i]} * double{x[i]};
  for (int64_t i = 0; i < n; ++i) out[i] = scale * x[i] / std::fmax(std::sqrt(squares), eps);
}

double softplus(double x) {
  return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

void rope(double* x, const float* cos, const float* sin, int32_t n_rot, bool neox) {
  for (int32_t i = 0; i < n_rot / 2; ++i) {
    double& a = neox ? x[i] : x[2 * i];
    double& b = neox ? x[i + n_rot / 2] : x[2 * i + 1];
    const double a0 = a;
    const double b0 = b;
    a = a0 * cos[i] - b0 * sin[i];
    b = a0 * sin[i] + b0 * cos[i];
  }
}

void softmax(const float* x, int64_t n, double* out) {
  double top = x[0];
  for (int64_t i = 1; i < n; ++i) top = std::fmax(top, x[i]);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += out[i] = std::exp(x[i] - top);
  for (int64_t i = 0; i < n; ++i) out[i] /= sum;
}

namespace {

bool in_ring(const AttentionArgs& a, int32_t row, int64_t p) {
  return p >= a.position[row] / kKvGroup * kKvGroup;
}

// Value i at position p of the keys or of the values, as row `row` sees it.
double seen_value(const AttentionArgs& a, bool keys, int32_t row, int64_t p, int32_t i) {
  const KvType type = keys ? a.k_type : a.v_type;
  const int32_t n = keys ? a.dk : a.dv;
  const int64_t stride = keys || a.v_stride == 0 ? n : a.v_stride;
  const uint8_t* data = static_cast<const uint8_t*>(keys ? a.k : a.v);
  if (type == KvType::kF16) {
    return double{f16_to_f32(reinterpret_cast<const f16*>(data)[p * stride + i])};
  }
  const int64_t row_bytes = kv_row_bytes(type, a.v == a.k ? a.dk : n);
  if (type == KvType::kQ8_0) return kv_value(type, data + p * row_bytes, i);
  if (in_ring(a, row, p)) {
    const f16* recent = keys ? a.recent_k : a.recent_v;
    return double{f16_to_f32(recent[(p + a.recent_shift) % a.recent_size * stride + i])};
  }
  if (!keys && a.v != a.k) return kv_value(type, data + p * row_bytes, i);
  const auto value_of = type == KvType::kQ4_0 ? kv_lane_value : kv_channel_value;
  return value_of(data + p / kKvGroup * kKvGroup * row_bytes, a.dk,
                  static_cast<int32_t>(p % kKvGroup), i);
}

}  // namespace

void attention(const AttentionArgs& a, double* out) {
  std::vector<double> score;
  std::vector<int8_t> rounded(static_cast<size_t>(a.dk) + 32);
  std::vector<float> scales(static_cast<size_t>(a.dk) / 32 + 1);
  for (int32_t i = 0; i < a.n_rows; ++i) {
    const float* q = a.q + i * a.q_stride;
    score.clear();
    double top = -INFINITY;
    quantize_q8(q, a.dk, rounded.data(), scales.data());
    for (int64_t p = a.begin[i]; p < a.end[i]; ++p) {
      double s = 0;
      const bool in_integers = a.k_type == KvType::kQ4_0 && !in_ring(a, i, p);
      for (int32_t d = 0; d < a.dk; ++d) {
        const size_t at = static_cast<size_t>(d);
        const double as_seen = in_integers ? double{scales[at / 32]} * rounded[at] : double{q[d]};
        s += as_seen * seen_value(a, true, i, p, d);
      }
      if (a.relative != nullptr) {
        const int64_t distance =
            std::clamp<int64_t>(p - a.position[i], -kRelativeReach, kRelativeReach);
        s += a.relative[a.buckets[distance + kRelativeReach] * a.relative_stride];
      }
      s *= a.scale;
      if (a.softcap != 0.0f) s = a.softcap * std::tanh(s / a.softcap);
      if (a.slope != nullptr)
        s -= double{a.slope[i]} * std::abs(static_cast<double>(p - a.position[i]));
      score.push_back(s);
      top = std::fmax(top, s);
    }
    double sum = 0;
    if (a.sink != nullptr) {
      top = std::fmax(top, a.sink[i]);
      sum = std::exp(a.sink[i] - top);
    }
    for (double& s : score) sum += s = std::exp(s - top);
    double* row = out + int64_t{i} * a.dv;
    for (int32_t c = 0; c < a.dv; ++c) row[c] = 0;
    for (size_t j = 0; j < score.size(); ++j) {
      const int64_t p = a.begin[i] + static_cast<int64_t>(j);
      for (int32_t c = 0; c < a.dv; ++c) row[c] += score[j] / sum * seen_value(a, false, i, p, c);
    }
  }
}

}  // namespace sluice::kernels::reference
