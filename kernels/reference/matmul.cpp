// Sizes of the formats, half precision, and the exact matrix multiplication that kernels are
// compared with.
#include <cmath>
#include <cstring>

#include "kernels/blocks.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels::reference {
namespace {

struct Format {
  Type type;
  int64_t values;
  size_t bytes;
};
constexpr Format kFormats[] = {
#define SLUICE_ELEMENT_TYPE(NAME, name, id, bytes) {Type::k##NAME, 1, bytes},
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) {Type::k##NAME, values, bytes},
#include "kernels/types.def"
};

const Format& format(Type type) {
  for (const Format& f : kFormats) {
    if (f.type == type) return f;
  }
  return kFormats[0];
}

}  // namespace

int64_t block_values(Type type) {
  return format(type).values;
}
size_t block_bytes(Type type) {
  return format(type).bytes;
}
size_t row_bytes(Type type, int64_t cols) {
  const Format& f = format(type);
  return static_cast<size_t>(cols / f.values) * f.bytes;
}

float f16_to_f32(f16 bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  float magnitude;
  if (exponent == 31) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = static_cast<float>(fraction) * 0x1p-24f;
  } else {
    const uint32_t word =
        static_cast<uint32_t>(exponent + 112) << 23 | static_cast<uint32_t>(fraction) << 13;
    std::memcpy(&magnitude, &word, 4);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

f16 f32_to_f16(float x) {
  const int sign = std::signbit(x) ? 0x8000 : 0;
  const float a = std::fabs(x);
  if (std::isnan(x)) return static_cast<f16>(sign | 0x7e00);
  if (a == 0.0f) return static_cast<f16>(sign);               // frexp gives zero no exponent
  if (a >= 65520.0f) return static_cast<f16>(sign | 0x7c00);  // halfway past the largest
  int exponent = 0;
  std::frexp(a, &exponent);  // a in [2^(exponent - 1), 2^exponent)
  const int unit = exponent - 11 < -24 ? -24 : exponent - 11;
  // Ties to even by the default rounding mode; exact scaling on both sides.
  const float steps = std::nearbyint(std::ldexp(a, -unit));
  if (unit == -24) return static_cast<f16>(sign | static_cast<int>(steps));
  // A carry out of the fraction increments the exponent.
  const int bits = ((unit + 24) << 10) + static_cast<int>(steps);
  return static_cast<f16>(sign | bits);
}

void matmul(Type type, const void* w, int64_t rows, int64_t cols, const float* x, int64_t ldx,
            int32_t n_tokens, double* y, int64_t ldy) {
  const int64_t step = block_values(type);
  const uint8_t* p = static_cast<const uint8_t*>(w);
  float block[kSuperBlock];
  for (int64_t r = 0; r < rows; ++r) {
    for (int32_t t = 0; t < n_tokens; ++t) y[t * ldy + r] = 0.0;
    for (int64_t c = 0; c < cols; c += step) {
      dequantize(type, p, step, block);
      p += block_bytes(type);
      for (int32_t t = 0; t < n_tokens; ++t) {
        const float* xt = x + t * ldx + c;
        for (int64_t i = 0; i < step; ++i) {
          y[t * ldy + r] += static_cast<double>(block[i]) * static_cast<double>(xt[i]);
        }
      }
    }
  }
}

namespace {

// Squared error of n values rounded with the largest mapped to `top`.
float rounding_error(const float* x, int64_t n, float largest, float top) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    const float e = x[i] - std::nearbyint(x[i] * (top / largest)) * (largest / top);
    sum += e * e;
  }
  return sum;
}

}  // namespace

void quantize_q8(const float* x, int64_t cols, int8_t* q, float* d) {
  for (int64_t c = 0; c < cols; c += 32) {
    const int64_t n = cols - c < 32 ? cols - c : 32;
    float largest = 0.0f;
    for (int64_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(x[c + i]));
    const bool visible = largest > 1e-30f;
    float top = 127.0f;
    for (float candidate = 126.0f; visible && candidate >= 120.0f; candidate -= 1.0f) {
      if (rounding_error(x + c, n, largest, candidate) < rounding_error(x + c, n, largest, top)) {
        top = candidate;
      }
    }
    float xq = 0.0f, qq = 0.0f;
    for (int64_t i = 0; i < n; ++i) {
      const float rounded = visible ? std::nearbyint(x[c + i] * (top / largest)) : 0.0f;
      q[c + i] = static_cast<int8_t>(rounded);
      xq += x[c + i] * rounded;
      qq += rounded * rounded;
    }
    d[c / 32] = visible ? xq / qq : 0.0f;
  }
}

}  // namespace sluice::kernels::reference
