// Fits blocks of 256 values whose parts have integer scales under one f16 scale. First each part's
// best real scale is found, then the nearby integer with the smallest decoded error. The f16 scale
// follows by least squares over all parts, and both steps repeat while that helps. Parts are SIMD
// lanes.
#pragma once

#include "convert/scale_search.h"

namespace sluice::convert {
namespace {

// Writes decoded codes in block order.
template <class Rows>
void codes_in_order(const typename Rows::F (&codes)[Rows::kValues], int offset, uint8_t* q) {
  for (int l = 0; l < Rows::kRows; ++l) {
    for (int i = 0; i < Rows::kValues; ++i) {
      q[l * Rows::kValues + i] = static_cast<uint8_t>(static_cast<int>(codes[i][l]) + offset);
    }
  }
}

// x = d * scale[i / N] * code
template <class Rows>
struct ScaledParts {
  using F = typename Rows::F;
  float d = 0;
  F scale{};
  F codes[Rows::kValues] = {};
};

// Chooses the integer scales for d. Returns the error; *step is the least-squares step of d.
template <class Codes, int LEAST, int MOST, class Rows, class F = typename Rows::F>
float choose_scales(const Rows& rows, float d, const F& wanted, F* scale, float* step) {
  const F near = nearest(clamped(wanted * (d == 0 ? 0 : 1 / d), LEAST, MOST));
  F least = all<F>(3e38f);
  for (const float by : {-1.0f, 0.0f, 1.0f}) {
    const F s = clamped(near + by, LEAST, MOST), error = error_of<Codes>(rows, d * s);
    const auto better = error < least;
    least = better ? error : least;
    *scale = better ? s : *scale;
  }
  const ScaleSums<F> best = measure<Codes>(rows, d * *scale);
  const float along = sum_of(*scale * *scale * best.along);
  *step = along > 0 ? sum_of(*scale * best.across) / along : 0;
  return sum_of(best.error);
}

template <class Codes, int LEAST, int MOST, class Rows, class F = typename Rows::F>
void fit_parts(const Rows& rows, bool keep_length, ScaledParts<Rows>* out) {
  const F wanted = fit_scale<Codes>(rows);
  const float high = max_of(wanted), low = -max_of(-wanted), peak = high > -low ? high : low;
  *out = {};
  if (peak == 0) return;
  float least = 3e38f;
  // The largest scale maps to the lowest integer, or to one a little beyond it.
  for (const float end : {static_cast<float>(LEAST), LEAST * 1.06f, LEAST * 0.94f}) {
    float d = as_stored_away(peak / end);
    for (int round = 0; round < 3; ++round) {
      F scale{};
      float step = 0;
      const float error = choose_scales<Codes, LEAST, MOST>(rows, d, wanted, &scale, &step);
      if (!(error < least)) break;
      least = error;
      out->d = d;
      out->scale = scale;
      const float next = as_stored(d + step);
      if (next == d) break;
      d = next;
    }
  }
  const F a = out->d * out->scale, inverse = inverse_of(a);
  Length<Rows::kRows, Rows::kValues> length;
  for (int i = 0; i < Rows::kValues; ++i) {
    out->codes[i] = Codes::code(rows.x[i] * inverse);
    length.add(rows.x[i], a * out->codes[i], rows.importance[i]);
  }
  if (keep_length && size_of(out->d) >= kMinNormal) {
    out->d = as_stored(out->d * length.stretch_together());
  }
}

// x = d * scale[i / N] * code - dmin * lowest[i / N]
template <class Rows>
struct LineParts {
  using F = typename Rows::F;
  float d = 0, dmin = 0;
  F scale{}, lowest{};
  F codes[Rows::kValues] = {};
};

// Sums from which least squares gives d and dmin.
struct PairSums {
  double error = 0, across_d = 0, across_m = 0, dd = 0, dm = 0, mm = 0;
};

// Chooses each part's scale and minimum among the integers next to those in scale and lowest.
template <int MOST, int LIMIT, class Rows, class F = typename Rows::F>
PairSums choose_lines(const Rows& rows, float d, float dmin, F* scale, F* lowest) {
  const auto line_of = [&](const F& s, const F& m) { return Line<F>{d * s, -(dmin * m)}; };
  const F near_s = *scale, near_m = *lowest;
  F least = all<F>(3e38f);
  for (const float by_s : {-1.0f, 0.0f, 1.0f}) {
    for (const float by_m : {-1.0f, 0.0f, 1.0f}) {
      const F s = clamped(near_s + by_s, 0, LIMIT), m = clamped(near_m + by_m, 0, LIMIT);
      const F error = error_of<MOST>(rows, line_of(s, m));
      const auto better = error < least;
      least = better ? error : least;
      *scale = better ? s : *scale;
      *lowest = better ? m : *lowest;
    }
  }
  const LineSums<F> best = measure<MOST>(rows, line_of(*scale, *lowest));
  const F s = *scale, m = *lowest;
  return {sum_of(best.error),        sum_of(s * best.rest_c),   -sum_of(m * best.rest),
          sum_of(s * s * best.w_cc), -sum_of(s * m * best.w_c), sum_of(m * m * best.w)};
}

template <int MOST, int LIMIT, class Rows, class F = typename Rows::F>
void fit_line_parts(const Rows& rows, LineParts<Rows>* out) {
  const Line<F> wanted = fit_line<MOST>(rows, true);
  const F depth = -wanted.m;
  const float max_a = max_of(wanted.a), max_m = max_of(depth);
  *out = {};
  double least = 3e38;
  for (const float share : {1.0f, LIMIT > 15 ? 0.97f : 0.9f}) {
    float d = as_stored_away((max_a > 0 ? max_a : 0) * share / LIMIT);
    float dmin = as_stored_away((max_m > 0 ? max_m : 0) * share / LIMIT);
    F scale = nearest(clamped(wanted.a * (d == 0 ? 0 : 1 / d), 0, LIMIT));
    F lowest = nearest(clamped(depth * (dmin == 0 ? 0 : 1 / dmin), 0, LIMIT));
    for (int round = 0; round < 3; ++round) {
      const PairSums s = choose_lines<MOST, LIMIT>(rows, d, dmin, &scale, &lowest);
      if (!(s.error < least)) break;
      least = s.error;
      out->d = d;
      out->dmin = dmin;
      out->scale = scale;
      out->lowest = lowest;
      double step_d = s.dd > 0 ? s.across_d / s.dd : 0, step_m = 0;
      const double area = s.dd * s.mm - s.dm * s.dm;
      if (area > 1e-6 * s.dd * s.mm) {
        step_d = (s.mm * s.across_d - s.dm * s.across_m) / area;
        step_m = (s.dd * s.across_m - s.dm * s.across_d) / area;
      }
      d = as_stored(d + static_cast<float>(step_d));
      dmin = as_stored(dmin + static_cast<float>(step_m));
      if (d < 0 || dmin < 0) break;
    }
  }
  const Line<F> line{out->d * out->scale, -(out->dmin * out->lowest)};
  const F inverse = inverse_of(line.a);
  Length<Rows::kRows, Rows::kValues> length;
  for (int i = 0; i < Rows::kValues; ++i) {
    out->codes[i] = line_code<MOST>(rows.x[i], line, inverse);
    length.add(rows.x[i], line.a * out->codes[i] + line.m, rows.importance[i]);
  }
  const float stretch = length.stretch_together();
  if (out->d >= kMinNormal) out->d = as_stored(out->d * stretch);
  if (out->dmin >= kMinNormal) out->dmin = as_stored(out->dmin * stretch);
}

}  // namespace
}  // namespace sluice::convert
