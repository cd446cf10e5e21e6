// The table of quantizers of one instruction set. The including source defines SLUICE_QUANTIZERS as
// the name of the function that returns it.
#pragma once

#include "convert/gptq_rows.h"

namespace sluice::convert {
namespace {

void to_f32_bytes(const float* x, const float*, int64_t n, uint8_t* out) {
  std::memcpy(out, x, static_cast<size_t>(n) * 4);
}
void to_f16_bytes(const float* x, const float*, int64_t n, uint8_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    const f16 h = to_f16(x[i]);
    std::memcpy(out + 2 * i, &h, 2);
  }
}
void to_bf16_bytes(const float* x, const float*, int64_t n, uint8_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = bits_of(x[i]);
    const uint16_t h = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(out + 2 * i, &h, 2);
  }
}

// Sums in double per lane, so that long sums keep their precision.
struct LaneErrors {
  static constexpr int kLanes = 16;
  double rest[kLanes] = {}, xx[kLanes] = {}, yy[kLanes] = {}, xy[kLanes] = {};
  double counted[kLanes] = {}, power[kLanes] = {};

  void add(const float* x, const float* y, const float* w) {
    for (int l = 0; l < kLanes; ++l) {
      const double a = x[l], b = y[l], c = w[l], r = a - b;
      rest[l] += r * r;
      xx[l] += a * a;
      yy[l] += b * b;
      xy[l] += a * b;
      counted[l] += c * r * r;
      power[l] += c * a * a;
    }
  }
};
// Outliers are rare: most steps have none.
void add_outliers(const float* x, const float* y, const float* w, int64_t n, const Bounds& bounds,
                  Errors* errors) {
  constexpr int kStep = LaneErrors::kLanes;
  const float low = bounds.low, high = bounds.high;
  for (int64_t i = 0; i + kStep <= n; i += kStep) {
    int any = 0;
    for (int l = 0; l < kStep; ++l) any |= (x[i + l] < low) | (x[i + l] > high);
    if (any == 0) continue;
    for (int64_t l = i; l < i + kStep; ++l) {
      if (x[l] >= low && x[l] <= high) continue;
      const double a = x[l], c = w[l], r = a - static_cast<double>(y[l]);
      errors->outliers += 1;
      errors->outlier_counted += c * r * r;
      errors->outlier_power += c * a * a;
    }
  }
}
void add_errors(const float* x, const float* y, const float* w, int64_t n, const Bounds& bounds,
                Errors* errors) {
  constexpr int kStep = LaneErrors::kLanes;
  LaneErrors sums;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) sums.add(x + i, y + i, w + i);
  float last_x[kStep] = {}, last_y[kStep] = {}, last_w[kStep] = {};
  std::memcpy(last_x, x + i, static_cast<size_t>(n - i) * 4);
  std::memcpy(last_y, y + i, static_cast<size_t>(n - i) * 4);
  std::memcpy(last_w, w + i, static_cast<size_t>(n - i) * 4);
  sums.add(last_x, last_y, last_w);
  for (int l = 0; l < kStep; ++l) {
    errors->squared += sums.rest[l];
    errors->xx += sums.xx[l];
    errors->yy += sums.yy[l];
    errors->xy += sums.xy[l];
    errors->counted += sums.counted[l];
    errors->power += sums.power[l];
  }
  errors->values += static_cast<double>(n);
  add_outliers(x, y, w, n, bounds, errors);
}

Quantize* quantizer(kernels::Type type) {
  using kernels::Type;
  switch (type) {
    case Type::kF32:
      return to_f32_bytes;
    case Type::kF16:
      return to_f16_bytes;
    case Type::kBF16:
      return to_bf16_bytes;
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) \
  case Type::k##NAME:                                    \
    return quantize_blocks<kernels::Block##NAME, values>;
#include "kernels/types.def"
  }
  return nullptr;
}

template <class Block, int N>
Gptq* gptq_of() {
  if constexpr (kCodes<Block> == 0 && !kEntryForm<Block>.is) {
    return nullptr;
  } else {
    return gptq_blocks<Block, N>;
  }
}
Gptq* gptq_quantizer(kernels::Type type) {
  using kernels::Type;
  switch (type) {
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) \
  case Type::k##NAME:                                    \
    return gptq_of<kernels::Block##NAME, values>();
#include "kernels/types.def"
    default:
      return nullptr;
  }
}

}  // namespace

Quantizers SLUICE_QUANTIZERS() {
  return {quantizer, gptq_quantizer, add_products, add_errors};
}

}  // namespace sluice::convert
