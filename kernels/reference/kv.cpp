// Quantized keys and values by their definition in kernels.h.
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

double level(KvType type, int code) {
  if (type == KvType::kQ8_0) return static_cast<int8_t>(code);
  return type == KvType::kQ4_0 ? kKvLevels4[code] - kKvMiddle4 : kKvLevels2[code] - kKvMiddle2;
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

double kv_value(KvType type, bool keys, const void* data, int32_t n, int64_t place, int32_t i) {
  const int bits = kv_bits(type), span = 4 * bits;
  const bool by_channel = keys && type == KvType::kQ2;
  const int64_t tiles = (n + 31) / 32, code_bytes = 128 * bits;
  const int64_t tile_bytes = code_bytes + (by_channel ? 0 : 64);
  const int64_t group_bytes = tiles * (2 * tile_bytes + (by_channel ? 128 : 0));
  const uint8_t* group = static_cast<const uint8_t*>(data) + place / 64 * group_bytes;
  const uint8_t* tile =
      group + (by_channel ? 128 * tiles : 0) + (place % 64 / 32 * tiles + i / 32) * tile_bytes;
  const int64_t p = place % 32, c = i % 32;
  const int64_t lane = keys ? p : c, in = keys ? c : p;
  const uint8_t* byte = tile + (by_channel ? 0 : 64) + (in % span / 4 * 32 + lane) * 4 + in % 4;
  const int code = *byte >> (in / span * bits) & ((1 << bits) - 1);
  if (!by_channel) return bf16_at(tile + 2 * p) * level(type, code);
  return bf16_at(group + 64 * tiles + 2 * i) + bf16_at(group + 2 * i) * (code - 1.5);
}

double least_kv_error(KvType type, const float* x) {
  double peak = 0;
  for (int i = 0; i < 32; ++i) peak = std::fmax(peak, std::fabs(x[i]));
  if (peak == 0) return 0;
  const int codes = type == KvType::kQ8_0 ? 255 : type == KvType::kQ4_0 ? 16 : 4;
  const auto level_of = [type](int code) {
    return level(type, type == KvType::kQ8_0 ? code - 127 : code);
  };
  double least = INFINITY;
  for (double top = 0.7; top < 1.8; top += 0.02) {
    const double d = peak / (top * level_of(codes - 1));
    double error = 0;
    for (int i = 0; i < 32; ++i) {
      double nearest = INFINITY;
      const int near = static_cast<int>(std::lround(x[i] / d) + 127);  // where levels are even
      const bool even = type == KvType::kQ8_0;
      for (int code = even ? std::clamp(near, 0, 254) : 0; code < codes; code += even ? codes : 1) {
        nearest = std::fmin(nearest, std::fabs(double{x[i]} - d * level_of(code)));
      }
      error += nearest * nearest;
    }
    least = std::fmin(least, error);
  }
  return least;
}

}  // namespace sluice::kernels::reference
