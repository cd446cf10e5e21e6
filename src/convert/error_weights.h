// The values that are fitted together and the weights of their errors. An error counts by the
// activations that it is multiplied with, and somewhat more where the value itself is large. In
// blocks with an offset the value's size is ignored, which gave better logits. The activations'
// mean squares enter unchanged, as in llama.cpp, or for types that stay ahead of it so, as their
// root, since that generalizes better to other texts.
#pragma once

#include "convert/row_simd.h"

namespace sluice::convert {
namespace {

constexpr int kSuper = kernels::kSuperBlock;

enum class Moments : uint8_t { kRoot, kWhole };  // root of the mean squares, or the mean squares

// L rows of N values: value i of row l is x[i][l].
template <int L, int N>
struct ErrorWeights {
  using F = Lanes<L>;
  static constexpr int kRows = L, kValues = N;
  F x[N], importance[N], w[N];  // importance: the given weights, or their root
  bool weighted = false;        // by an importance matrix: the given weights differ

  // Rows from `rows` on are set to zero.
  void load(const float* values, const float* weights, int rows, Moments moments) {
    for (int i = 0; i < N; ++i) x[i] = importance[i] = F{};
    for (int l = 0; l < rows; ++l) {
      for (int i = 0; i < N; ++i) {
        x[i][l] = values[l * N + i];
        const float given = weights[l * N + i];
        weighted |= given != weights[0];
        importance[i][l] = moments == Moments::kRoot ? __builtin_sqrtf(given) : given;
      }
    }
  }

  // w = importance * sqrt(1 + x^2 / (2 mean x^2)), scaled to a mean of about 1 so that sums of
  // products do not underflow. Rows of one block share both means.
  void weigh(bool one_block) {
    F power{}, total{};
    for (int i = 0; i < N; ++i) {
      power += x[i] * x[i];
      total += importance[i];
    }
    if (one_block) {
      power = all<F>(sum_of(power) / L);
      total = all<F>(sum_of(total) / L);
    }
    const F share = ratio(all<F>(N / 2.0f), power), unit = ratio(all<F>(N), total);
    for (int i = 0; i < N; ++i) w[i] = importance[i] * unit * root(1.0f + x[i] * x[i] * share);
  }
  // w = importance, with a mean of 1.
  void weigh_by_importance(bool one_block) {
    F total{};
    for (int i = 0; i < N; ++i) total += importance[i];
    if (one_block) total = all<F>(sum_of(total) / L);
    const F unit = ratio(all<F>(N), total);
    for (int i = 0; i < N; ++i) w[i] = importance[i] * unit;
  }
};

// The factor that restores the scale of a fit. Least squares shrinks what it fits, by a different
// share in each block. These shares add up over a row, where errors of single values cancel.
// Vargaftik et al., EDEN (2022), equation 6. It costs some error. Q4_0, Q4_1, Q5_1 and Q3_K do
// without it under an importance matrix, or they would lose more than llama.cpp's.
template <int L, int N>
struct Length {
  using F = Lanes<L>;
  F across{}, power{};
  void add(const F& x, const F& y, const F& weight) {
    across += weight * x * y;
    power += weight * x * x;
  }
  // Per row, or for all rows together.
  [[nodiscard]] F stretch() const { return clamped(ratio(power, across)); }
  [[nodiscard]] float stretch_together() const { return within(kMax); }
  // For codes of less than two bits, whose blocks keep their power: the whole stretch would cost
  // more error than it saves.
  [[nodiscard]] float stretch_of_power() const { return __builtin_sqrtf(within(1.5f)); }

 private:
  static constexpr float kMin = 0.9f, kMax = 1.3f;
  [[nodiscard]] float within(float max) const {
    const float a = sum_of(across), p = sum_of(power);
    return a > 0 && p / a < max && p / a > kMin ? p / a : 1;
  }
  static F clamped(const F& stretch) {
    const auto fair = (stretch > all<F>(kMin)) & (stretch < all<F>(kMax));
    return fair ? stretch : all<F>(1);
  }
};

}  // namespace
}  // namespace sluice::convert
