// Vector functions of a layer (norms, rope, activations, softmax), in plain loops.
#pragma once

#include <math.h>
#include <stddef.h>

#include "kernels/kernels.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float factor = 1.0f / ::sqrtf(sum / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor * (weight != nullptr ? weight[i] : 1.0f);
}
void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                float* out) {
  float mean = 0.0f, variance = 0.0f;
  for (int64_t i = 0; i < n; ++i) mean += x[i];
  mean /= static_cast<float>(n);
  for (int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const float factor = 1.0f / ::sqrtf(variance / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = (x[i] - mean) * factor * (weight != nullptr ? weight[i] : 1.0f) +
             (bias != nullptr ? bias[i] : 0.0f);
  }
}
void rope(float* x, const float* cos, const float* sin, int32_t n_rot, bool neox) {
  for (int32_t i = 0; i < n_rot / 2; ++i) {
    float& a = neox ? x[i] : x[2 * i];
    float& b = neox ? x[i + n_rot / 2] : x[2 * i + 1];
    const float a0 = a, b0 = b;
    a = a0 * cos[i] - b0 * sin[i];
    b = a0 * sin[i] + b0 * cos[i];
  }
}
[[maybe_unused]] static inline float silu_value(float x) {
  return x / (1.0f + ::expf(-x));
}
[[maybe_unused]] static inline float gelu_tanh_value(float x) {
  return 0.5f * x * (1.0f + ::tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}
void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = silu_value(gate[i]) * up[i];
}
void gelu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = gelu_tanh_value(gate[i]) * up[i];
}
void gelu_tanh(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = gelu_tanh_value(x[i]);
}
void gelu_erf(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = 0.5f * x[i] * (1.0f + ::erff(x[i] * 0.70710678f));
}
void silu(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = silu_value(x[i]);
}
void add(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}
void scale(const float* x, float factor, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}
void soft_cap(const float* x, float cap, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = cap * ::tanhf(x[i] / cap);
}
void softmax(const float* x, int64_t n, float* out) {
  float largest = x[0], sum = 0.0f;
  for (int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  for (int64_t i = 0; i < n; ++i) sum += out[i] = ::expf(x[i] - largest);
  for (int64_t i = 0; i < n; ++i) out[i] /= sum;
}
void f32_to_f16(const float* x, int64_t n, f16* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = reference::f32_to_f16(x[i]);
}
void f16_to_f32(const f16* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = reference::f16_to_f32(x[i]);
}
int64_t argmax(const float* x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) best = x[i] > x[best] ? i : best;
  return best;
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
