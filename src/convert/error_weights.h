// What is fitted together, value by value, with the weights that its errors count by: an error
// matters by how large the activations are that it meets, and somewhat more where the value itself
// is large, because the model was trained to lean on it; where a block has an offset, logits came
// nearer without that. Of the activations' second moments the root counts, because one text is not
// all texts and logits of another one came nearer so, but for Q5_0 and where a block has an offset,
// which they serve as they are.
#pragma once

#include "convert/row_simd.h"

namespace sluice::convert {
namespace {

constexpr int kSuper = kernels::kSuperBlock;

enum class Moments : uint8_t { kRoot, kWhole };  // what of them counts

// L rows of N values: value i of row l is x[i][l].
template <int L, int N>
struct ErrorWeights {
  using F = Lanes<L>;
  static constexpr int kRows = L, kValues = N;
  F x[N], importance[N], w[N];  // importance: the weights that were given, or their root

  // Rows from `rows` on are left at zero.
  void load(const float* values, const float* weights, int rows, Moments moments) {
    for (int i = 0; i < N; ++i) x[i] = importance[i] = F{};
    for (int l = 0; l < rows; ++l) {
      for (int i = 0; i < N; ++i) {
        x[i][l] = values[l * N + i];
        const float given = weights[l * N + i];
        importance[i][l] = moments == Moments::kRoot ? __builtin_sqrtf(given) : given;
      }
    }
  }

  // w = importance sqrt(1 + x^2 / (2 mean x^2)), with a mean of about 1 so that no sum of products
  // underflows. Rows of one block share both means.
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

// By what a fit has to be longer so that its product with the values themselves is the values'
// own: least squares shrink what they fit, by another share in each block, and those shares add up
// over a row where errors of single values cancel. Vargaftik et al., EDEN (2022), equation 6.
template <int L, int N>
struct Length {
  using F = Lanes<L>;
  F across{}, power{};
  void add(const F& x, const F& y, const F& weight) {
    across += weight * x * y;
    power += weight * x * x;
  }
  // Of each row, or of all rows together.
  [[nodiscard]] F stretch() const { return clamped(ratio(power, across)); }
  [[nodiscard]] float stretch_together() const {
    const float a = sum_of(across), p = sum_of(power);
    return a > 0 && p / a < kMax && p / a > kMin ? p / a : 1;
  }

 private:
  static constexpr float kMin = 0.9f, kMax = 1.3f;
  static F clamped(const F& stretch) {
    const auto fair = (stretch > all<F>(kMin)) & (stretch < all<F>(kMax));
    return fair ? stretch : all<F>(1);
  }
};

}  // namespace
}  // namespace sluice::convert
