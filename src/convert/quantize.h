// From f32 to every weight type, by quantizers of our own: the scales of a block are searched for
// the least weighted error of what is decoded from it. The same bytes on every instruction set.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "kernels/kernels.h"

namespace sluice::convert {

// Writes n values x (whole blocks) in file layout. w[i] >= 0 says how much an error of x[i] counts;
// it is ones where nothing is known. Values must be finite.
using Quantize = void(const float* x, const float* w, int64_t n, uint8_t* out);

// Values outside are outliers.
struct Bounds {
  float low = -HUGE_VALF, high = HUGE_VALF;
};

// Sums over pairs of a value and what is decoded from its code.
struct Errors {
  double squared = 0;             // of (x - y)^2
  double xx = 0, yy = 0, xy = 0;  // of x^2, y^2, x y
  double counted = 0, power = 0;  // of w (x - y)^2 and w x^2
  double values = 0, outliers = 0;
  double outlier_counted = 0, outlier_power = 0;  // of w (x - y)^2 and w x^2 of outliers

  void add(const Errors& other);
  [[nodiscard]] double cosine() const;
  [[nodiscard]] double outlier_share() const { return values > 0 ? outliers / values : 0; }
  // Of the power that outliers have.
  [[nodiscard]] double outlier_error() const {
    return outlier_power > 0 ? outlier_counted / outlier_power : 0;
  }
};

struct Quantizers {
  Quantize* (*of)(kernels::Type type);
  // n is a multiple of 16 where there are bounds.
  void (*add_errors)(const float* x, const float* y, const float* w, int64_t n,
                     const Bounds& bounds, Errors* errors);
};

// Those for the instruction set that kernels::best() has, or one by name; they differ in speed
// alone.
[[nodiscard]] Quantizers best_quantizers();
[[nodiscard]] Quantizers quantizers_by_name(std::string_view name);

}  // namespace sluice::convert
