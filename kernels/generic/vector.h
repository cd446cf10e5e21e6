// The table's vector functions: norms, rotary embedding, activations, softmax, f16, argmax. Sums
// use vectors within blocks and double across blocks, so they stay accurate for any length. Tails
// use load_n and store_n: nothing past n is read or written, and out may be one of the inputs.
#pragma once

#include "kernels/generic/vector_math.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int64_t kSumBlock = 1024;  // floats summed in vectors before double takes over

// out[i] = f(x[i]).
template <class F>
SLUICE_INLINE void map(const float* x, int64_t n, float* out, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, f(load(x + i)));
  const int rest = static_cast<int>(n - i);
  if (rest > 0) store_n(out + i, f(load_n(x + i, rest)), rest);
}

// out[i] = f(a[i], b[i]).
template <class F>
SLUICE_INLINE void map(const float* a, const float* b, int64_t n, float* out, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, f(load(a + i), load(b + i)));
  const int rest = static_cast<int>(n - i);
  if (rest > 0) store_n(out + i, f(load_n(a + i, rest), load_n(b + i, rest)), rest);
}

// The first n lanes, then zeros.
SLUICE_INLINE F32 keep_n(F32 a, int n) {
  float lanes[kLanes] = {};
  store_n(lanes, a, n);
  return load(lanes);
}

// The sum of f(x[i]).
template <class F>
SLUICE_INLINE double sum_of(const float* x, int64_t n, F f) {
  double total = 0;
  for (int64_t start = 0; start < n; start += kSumBlock) {
    const int64_t end = n - start < kSumBlock ? n : start + kSumBlock;
    F32 s0 = splat(0.0f), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = start;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      s0 = s0 + f(load(x + i));
      s1 = s1 + f(load(x + i + kLanes));
      s2 = s2 + f(load(x + i + 2 * kLanes));
      s3 = s3 + f(load(x + i + 3 * kLanes));
    }
    for (; i + kLanes <= end; i += kLanes) s0 = s0 + f(load(x + i));
    const int rest = static_cast<int>(end - i);
    if (rest > 0) s1 = s1 + keep_n(f(load_n(x + i, rest)), rest);
    total += static_cast<double>(reduce_add((s0 + s1) + (s2 + s3)));
  }
  return total;
}

float max_of(const float* x, int64_t n) {
  F32 best = splat(kNegativeInfinity);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) best = max(load(x + i), best);
  float result = reduce_max(best);
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

// --- norms -------------------------------------------------------------------------------------
// x / sqrt(mean(x^2) + eps) * weight; Zhang, Sennrich 2019.
void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  const double squares = sum_of(x, n, [](F32 v) { return v * v; });
  const double mean = squares / static_cast<double>(n) + static_cast<double>(eps);
  const F32 factor = splat(static_cast<float>(1.0 / __builtin_sqrt(mean)));
  if (weight == nullptr) {
    map(x, n, out, [=](F32 v) { return v * factor; });
  } else {
    map(x, weight, n, out, [=](F32 v, F32 w) { return v * factor * w; });
  }
}

// (x - mean) / sqrt(variance + eps) * weight + bias; Ba, Kiros, Hinton 2016. The variance uses the
// differences, since E[x^2] - mean^2 cancels. The mean is two floats, the second from its own pass
// over x, which may be far from 0 compared with its spread.
void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                float* out) {
  const double count = static_cast<double>(n);
  const F32 high = splat(static_cast<float>(sum_of(x, n, [](F32 v) { return v; }) / count));
  const F32 low = splat(static_cast<float>(sum_of(x, n, [=](F32 v) { return v - high; }) / count));
  const auto centred = [=](F32 v) { return (v - high) - low; };
  const double squares = sum_of(x, n, [=](F32 v) { return centred(v) * centred(v); });
  const double variance = squares / count + static_cast<double>(eps);
  const F32 factor = splat(static_cast<float>(1.0 / __builtin_sqrt(variance)));
  if (weight == nullptr) {
    map(x, n, out, [=](F32 v) { return centred(v) * factor; });
  } else {
    map(x, weight, n, out, [=](F32 v, F32 w) { return centred(v) * factor * w; });
  }
  if (bias != nullptr) map(out, bias, n, out, [](F32 v, F32 b) { return v + b; });
}

// scale * x / max(|x|, eps).
void l2_norm(const float* x, float scale, float eps, int64_t n, float* out) {
  const double length = __builtin_sqrt(sum_of(x, n, [](F32 v) { return v * v; }));
  const double least = static_cast<double>(eps);
  const double by = static_cast<double>(scale) / (length > least ? length : least);
  const F32 factor = splat(static_cast<float>(by));
  map(x, n, out, [=](F32 v) { return v * factor; });
}

// --- rotary embedding; Su et al. 2021 ------------------------------------------------------------
void rope_pairs(float* x, const float* __restrict cos, const float* __restrict sin, int32_t half) {
  for (int32_t i = 0; i < half; ++i) {  // compilers vectorize this with their own shuffles
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = a * sin[i] + b * cos[i];
  }
}

void rope(float* x, const float* cos, const float* sin, int32_t n_rot, bool neox) {
  const int32_t half = n_rot / 2;
  if (!neox) return rope_pairs(x, cos, sin, half);
  for (int32_t i = 0; i < half; i += kLanes) {
    const int n = half - i < kLanes ? half - i : kLanes;
    const F32 a = load_n(x + i, n), b = load_n(x + half + i, n);
    const F32 c = load_n(cos + i, n), s = load_n(sin + i, n);
    store_n(x + i, neg_mul_add(b, s, a * c), n);
    store_n(x + half + i, mul_add(b, c, a * s), n);
  }
}

// --- elementwise ---------------------------------------------------------------------------------
void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  map(gate, up, n, out, [](F32 g, F32 u) { return silu(g) * u; });
}
void gelu_mul(const float* gate, const float* up, int64_t n, float* out) {
  map(gate, up, n, out, [](F32 g, F32 u) { return gelu_tanh(g) * u; });
}
void gelu_tanh(const float* x, int64_t n, float* out) {
  map(x, n, out, [](F32 v) { return gelu_tanh(v); });
}
void gelu_erf(const float* x, int64_t n, float* out) {
  map(x, n, out, [](F32 v) { return gelu_erf(v); });
}
void silu(const float* x, int64_t n, float* out) {
  map(x, n, out, [](F32 v) { return silu(v); });
}
void xielu(const float* x, const Xielu& by, int64_t n, float* out) {
  const F32 positive = splat(by.positive), negative = splat(by.negative);
  const F32 linear = splat(by.linear), below = splat(by.below);
  map(x, n, out, [=](F32 v) {
    const F32 curve = exp(min(v, below)) - splat(1.0f) - v;
    const F32 bent = select(splat(0.0f) < v, positive * v * v, negative * curve);
    return mul_add(linear, v, bent);
  });
}
void sigmoid(const float* x, int64_t n, float* out) {
  map(x, n, out, [](F32 v) { return sigmoid_times(v, splat(1.0f)); });
}
void tanh(const float* x, int64_t n, float* out) {
  map(x, n, out, [](F32 v) { return tanh(v); });
}
void exp(const float* x, int64_t n, float* out) {
  map(x, n, out, [](F32 v) { return exp(v); });
}
void softplus(const float* x, int64_t n, float* out) {
  map(x, n, out, [](F32 v) { return softplus(v); });
}
void add(const float* a, const float* b, int64_t n, float* out) {
  map(a, b, n, out, [](F32 u, F32 v) { return u + v; });
}
void scale(const float* x, float factor, int64_t n, float* out) {
  const F32 f = splat(factor);
  map(x, n, out, [=](F32 v) { return v * f; });
}
void soft_cap(const float* x, float cap, int64_t n, float* out) {
  const F32 c = splat(cap);
  const F32 inverse = splat(1.0f / cap);
  map(x, n, out, [=](F32 v) { return c * tanh(v * inverse); });
}

void softmax(const float* x, int64_t n, float* out) {
  const F32 top = splat(max_of(x, n));
  map(x, n, out, [=](F32 v) { return exp(v - top); });
  const double total = sum_of(out, n, [](F32 v) { return v; });
  scale(out, static_cast<float>(1.0 / total), n, out);
}

// --- f16 -----------------------------------------------------------------------------------------
void f32_to_f16(const float* x, int64_t n, f16* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_f16(out + i, load(x + i));
  if (i == n) return;
  const size_t rest = static_cast<size_t>(n - i);
  f16 tail[kLanes];
  store_f16(tail, load_n(x + i, static_cast<int>(rest)));
  memcpy(out + i, tail, rest * sizeof(f16));
}

void f16_to_f32(const f16* x, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load_f16(x + i));
  if (i == n) return;
  const size_t rest = static_cast<size_t>(n - i);
  f16 tail[kLanes] = {};
  memcpy(tail, x + i, rest * sizeof(f16));
  store_n(out + i, load_f16(tail), static_cast<int>(rest));
}

// --- argmax --------------------------------------------------------------------------------------
// The first of equal maxima; NaN is less than everything; 0 if nothing exceeds -inf. Only the block
// with the maximum is searched element by element.
int64_t argmax(const float* x, int64_t n) {
  constexpr int64_t kBlock = 1024;
  float best = kNegativeInfinity;
  int64_t best_start = 0;
  for (int64_t start = 0; start < n; start += kBlock) {
    const float top = max_of(x + start, n - start < kBlock ? n - start : kBlock);
    if (top > best) {
      best = top;
      best_start = start;
    }
  }
  for (int64_t i = best_start; i < n; ++i) {
    if (x[i] == best) return i;
  }
  return 0;
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
