// KV cache quantization from its definition in kernels.h.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"

namespace sluice::kernels::reference {
namespace {

double bf16_at(const uint8_t* p) {
  const uint32_t bits = static_cast<uint32_t>(p[0]) << 16 | static_cast<uint32_t>(p[1]) << 24;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return double{value};
}

double level4(int code) {
  return kKvLevels4[code];
}
double level2(int code) {
  const double u = code - 1.5;
  return u + double{kKvCurve2} * u * u * u;
}

}  // namespace

void rotate(const float* x, int32_t n, double* out) {
  for (int32_t size = 1; n > 0; size = 1) {
    while (2 * size <= n) size *= 2;
    for (int32_t i = 0; i < size; ++i) {
      double sum = 0;
      for (int32_t j = 0; j < size; ++j) {
        sum += __builtin_parity(static_cast<unsigned>(i & j)) ? -double{x[j]} : double{x[j]};
      }
      out[i] = sum / std::sqrt(static_cast<double>(size));
    }
    x += size;
    out += size;
    n -= size;
  }
}

double kv_value(KvType type, const void* row, int32_t i) {
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  if (type == KvType::kQ8_0) {
    const uint8_t* block = bytes + i / 32 * 34;
    return bf16_at(block) * static_cast<int8_t>(block[2 + i % 32]);
  }
  if (type == KvType::kQ4_0) {
    const uint8_t* block = bytes + i / 32 * 18;
    return bf16_at(block) * level4(block[2 + i % 16] >> (i % 32 / 16 * 4) & 15);
  }
  const uint8_t* block = bytes + i / 64 * 20;
  return bf16_at(block + i % 64 / 32 * 2) * level2(block[4 + i % 16] >> (i % 64 / 16 * 2) & 3);
}

double kv_lane_value(const void* group, int32_t n, int32_t p, int32_t i) {
  const uint8_t* run =
      static_cast<const uint8_t*>(group) + p / 16 * 16 * kv_row_bytes(KvType::kQ4_0, n);
  const uint8_t* block = run + i / 32 * 16 * 18;
  const int j = i % 16;
  const uint8_t byte = block[32 + j / 4 * 64 + p % 16 * 4 + j % 4];
  return bf16_at(block + 2 * (p % 16)) * level4(byte >> (i % 32 / 16 * 4) & 15);
}

double kv_channel_value(const void* group, int32_t n, int32_t p, int32_t i) {
  const uint8_t* bytes = static_cast<const uint8_t*>(group);
  const int64_t padded = (n + 63) / 64 * 64;
  const uint8_t code = bytes[4 * padded + p * (padded / 4) + i / 64 * 16 + i % 16];
  const double step = bf16_at(bytes + 2 * i), middle = bf16_at(bytes + 2 * (padded + i));
  return middle + step * ((code >> (i % 64 / 16 * 2) & 3) - 1.5);
}

double min_kv_error(KvType type, const float* x) {
  double peak = 0;
  for (int i = 0; i < 32; ++i) peak = std::fmax(peak, std::fabs(x[i]));
  if (peak == 0) return 0;
  const int codes = type == KvType::kQ8_0 ? 255 : type == KvType::kQ4_0 ? 16 : 4;
  const auto level = [type](int code) {
    return type == KvType::kQ8_0   ? code - 127.0
           : type == KvType::kQ4_0 ? level4(code)
                                   : level2(code);
  };
  double least = INFINITY;
  for (double top = 0.7; top < 1.8; top += 0.02) {
    const double d = peak / (top * level(codes - 1));
    double error = 0;
    for (int i = 0; i < 32; ++i) {
      double nearest = INFINITY;
      const int near = static_cast<int>(std::lround(x[i] / d) + 127);  // if evenly spaced
      const bool even = type == KvType::kQ8_0;
      for (int code = even ? std::clamp(near, 0, 254) : 0; code < codes; code += even ? codes : 1) {
        nearest = std::fmin(nearest, std::fabs(double{x[i]} - d * level(code)));
      }
      error += nearest * nearest;
    }
    least = std::fmin(least, error);
  }
  return least;
}

}  // namespace sluice::kernels::reference
