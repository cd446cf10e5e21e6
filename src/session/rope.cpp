// Angles are in double precision: positions reach 10^5 and more, where f32 loses the phase.
#include "session/rope.h"

#include <algorithm>
#include <cmath>

namespace sluice::session {
namespace {

constexpr double kTwoPi = 6.283185307179586476925;

// YaRN's bounds between dimensions that extrapolate and dimensions that interpolate (equation 17).
struct Ramp {
  double low = 0, high = 0;
  [[nodiscard]] double extrapolated(int32_t pair) const {
    const double y = (pair - low) / std::max(0.001, high - low);
    return 1 - std::clamp(y, 0.0, 1.0);
  }
};

Ramp yarn_ramp(const model::RopeHParams& rope) {
  const auto dimension = [&rope](double rotations) {
    return rope.n_rot * std::log(static_cast<double>(rope.n_ctx_orig) / (rotations * kTwoPi)) /
           (2 * std::log(static_cast<double>(rope.freq_base)));
  };
  Ramp ramp;
  ramp.low = std::max(0.0, std::floor(dimension(rope.beta_fast)));
  ramp.high = std::min(rope.n_rot - 1.0, std::ceil(dimension(rope.beta_slow)));
  return ramp;
}

// Which position pair i rotates by: 0 time, 1 row, 2 column. Sections repeat. In turns, columns and
// rows have as many of the first pairs of their turn as their sections, and the rest is time.
int section_of(const model::RopeHParams& rope, int32_t pair) {
  const auto [time, row, column] = rope.sections;
  const int32_t i = pair % (time + row + column);
  if (rope.in_turns) {
    const int32_t turn = i % 3;
    return (turn == 1 && i < 3 * row) || (turn == 2 && i < 3 * column) ? turn : 0;
  }
  return i < time ? 0 : i < time + row ? 1 : i < time + row + column ? 2 : 0;
}

// `grid`: null for tokens at positions from `first` on.
void fill(const model::RopeHParams& rope, const float* factors, int32_t first, const RopeGrid* grid,
          int32_t n, float* out, bool back) {
  const int32_t half = rope.n_rot / 2;
  const bool yarn = rope.scaling == model::RopeScaling::kYarn;
  const Ramp ramp = yarn ? yarn_ramp(rope) : Ramp{};
  double magnitude = rope.attn_factor;
  if (yarn && rope.freq_scale < 1) {
    const double growth = 0.1 * std::log(1.0 / rope.freq_scale);
    magnitude *= (1 + growth) / (1 + rope.log_multiplier * growth);
  }
  if (back) magnitude = 1;
  // std::pow would add 5 kB of tables to the wasm binary.
  const double log_base = std::log(static_cast<double>(rope.freq_base));
  for (int32_t i = 0; i < half; ++i) {
    double frequency = std::exp(-2.0 * i / rope.n_rot * log_base);
    if (factors != nullptr) frequency /= factors[i];
    double scaled = frequency * rope.freq_scale;
    if (yarn) {
      const double mix = ramp.extrapolated(i);
      scaled = scaled * (1 - mix) + frequency * mix;
    }
    const int section = grid != nullptr ? section_of(rope, i) : 0;
    for (int32_t t = 0; t < n; ++t) {
      int32_t position = first + t;
      if (grid != nullptr) {
        const int32_t cell = grid->first + t;
        const int32_t from[] = {0, cell / grid->columns, cell % grid->columns};
        position = grid->time + from[section];
      }
      const double angle = position * scaled;
      float* row = out + static_cast<int64_t>(t) * rope.n_rot;
      row[i] = static_cast<float>(std::cos(angle) * magnitude);
      row[half + i] = static_cast<float>(std::sin(back ? -angle : angle) * magnitude);
    }
  }
}

}  // namespace

void fill_rope_table(const model::RopeHParams& rope, const float* factors, int32_t first, int32_t n,
                     float* out, bool back) {
  fill(rope, factors, first, nullptr, n, out, back);
}

void fill_rope_table(const model::RopeHParams& rope, const float* factors, const RopeGrid& grid,
                     int32_t n, float* out, bool back) {
  fill(rope, factors, 0, &grid, n, out, back);
}

}  // namespace sluice::session
