// Quantizes f32 to every quantization type. The scales of a block are searched for the smallest
// weighted error of the decoded values. All instruction sets produce the same bytes.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "kernels/kernels.h"

namespace sluice::convert {

// Quantizes n finite values x (whole blocks) to the file layout. w[i] >= 0 is the weight of x[i]'s
// error; ones if unknown.
using Quantize = void(const float* x, const float* w, int64_t n, uint8_t* out);

// Values outside are outliers.
struct Bounds {
  float low = -HUGE_VALF, high = HUGE_VALF;
};

// Sums over pairs of a value x and its decoded value y.
struct Errors {
  double squared = 0;             // of (x - y)^2
  double xx = 0, yy = 0, xy = 0;  // of x^2, y^2, x y
  double counted = 0, power = 0;  // of w (x - y)^2 and w x^2
  double values = 0, outliers = 0;
  double outlier_counted = 0, outlier_power = 0;  // the same sums over outliers

  void add(const Errors& other);
  [[nodiscard]] double cosine() const;
  [[nodiscard]] double outlier_share() const { return values > 0 ? outliers / values : 0; }
  // Squared error of outliers as a share of their power.
  [[nodiscard]] double outlier_error() const {
    return outlier_power > 0 ? outlier_counted / outlier_power : 0;
  }
};

struct SpanFactors;

// Up to GptqRoom::kRows rows of a span.
struct GptqRows {
  const kernels::Table* kernels;  // decodes
  kernels::Type type;
  int n;           // rows
  const float* x;  // row l at x + l * ld
  int64_t ld;
  uint8_t* out;  // the blocks of row l at out + l * out_ld
  int64_t out_ld;
};

// Scratch of one thread for Gptq. Values of 16 rows are side by side.
struct GptqRoom {
  static constexpr int kRows = 16, kBlock = 256, kColumns = 1024, kCodes = 64;
  float errors[kColumns][kRows];
  float x[kBlock][kRows], base[kBlock][kRows], octet_base[kBlock][kRows], targets[kBlock][kRows];
  float values[kBlock][kRows], best_values[kBlock][kRows];
  float table[kBlock * kCodes][kRows];
  float row_x[kRows * kBlock], row_w[kRows * kBlock];
  uint16_t entries[kRows][kBlock / 4];
  uint8_t signs[kRows][kBlock / 8];
  uint8_t codes[kRows * kBlock], blocks[kRows * kBlock * 2], best_blocks[kRows * kBlock * 2];
};

// Quantizes rows of a span with error feedback (gptq.h).
using Gptq = void(const SpanFactors& factors, const GptqRows& rows, GptqRoom* room);

struct Quantizers {
  Quantize* (*of)(kernels::Type type);
  Gptq* (*gptq)(kernels::Type type);  // null for Q8_0 and types without blocks
  // Adds the sums over n rows x[t] of x[t][i] x[t][j] to a lower triangle, for j <= i and up to
  // four i from `col` on. The rows are ld apart and have `cols` values.
  void (*add_products)(const float* x, int64_t ld, int32_t n, int64_t cols, int64_t col,
                       float* triangle);
  // n must be a multiple of 16 if there are bounds.
  void (*add_errors)(const float* x, const float* y, const float* w, int64_t n,
                     const Bounds& bounds, Errors* errors);
};

// The quantizers for the instruction set of kernels::best(), or for a named one. They differ only
// in speed.
[[nodiscard]] Quantizers best_quantizers();
[[nodiscard]] Quantizers quantizers_by_name(std::string_view name);

}  // namespace sluice::convert
