// Attention of several query rows over one KV head, in plain loops: per row, a running maximum and
// sum, so that one pass over the positions is enough.
#pragma once

#include <math.h>
#include <stddef.h>

#include "kernels/kernels.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

size_t attention_scratch(int32_t, int32_t, int32_t) {
  return 64;
}

void attention(const AttentionArgs& a) {
  for (int32_t i = 0; i < a.n_rows; ++i) {
    const float* q = a.q + i * a.q_stride;
    float* out = a.out + i * a.out_stride;
    for (int32_t c = 0; c < a.dv; ++c) out[c] = 0.0f;
    float largest = -INFINITY, sum = 0.0f;
    for (int64_t p = a.begin[i]; p < a.end[i]; ++p) {
      float score = 0.0f;
      for (int32_t c = 0; c < a.dk; ++c) score += q[c] * reference::f16_to_f32(a.k[p * a.dk + c]);
      score *= a.scale;
      if (a.softcap != 0.0f) score = a.softcap * ::tanhf(score / a.softcap);
      const float top = score > largest ? score : largest;
      const float keep = ::expf(largest - top), weight = ::expf(score - top);
      largest = top;
      sum = sum * keep + weight;
      for (int32_t c = 0; c < a.dv; ++c) {
        out[c] = out[c] * keep + weight * reference::f16_to_f32(a.v[p * a.dv + c]);
      }
    }
    if (a.partial_max != nullptr && a.partial_sum != nullptr) {
      a.partial_max[i] = largest;
      a.partial_sum[i] = sum;
    } else {
      for (int32_t c = 0; c < a.dv; ++c) out[c] /= sum;
    }
  }
}

void attention_merge(const float* partial, int64_t stride, const float* part_max,
                     const float* part_sum, int32_t n_parts, int32_t dv, float* out) {
  float largest = part_max[0], sum = 0.0f;
  for (int32_t p = 1; p < n_parts; ++p) largest = part_max[p] > largest ? part_max[p] : largest;
  for (int32_t c = 0; c < dv; ++c) out[c] = 0.0f;
  for (int32_t p = 0; p < n_parts; ++p) {
    const float weight = ::expf(part_max[p] - largest);
    sum += weight * part_sum[p];
    for (int32_t c = 0; c < dv; ++c) out[c] += weight * partial[p * stride + c];
  }
  for (int32_t c = 0; c < dv; ++c) out[c] /= sum;
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
