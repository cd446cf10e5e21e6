// Fits rows of N values to small integers with one scale per row. Many scales are tried, and the
// best is refined by least squares. The error that decides is that of the decoded values. The
// largest value only determines where the search begins.
#pragma once

#include "convert/error_weights.h"

namespace sluice::convert {
namespace {

constexpr float kNothing = 1e-30f;  // rows whose values are all smaller are stored as zero

// --- codes: the integers or table entries of a type, and the range searched for its scale

// Integers from LEAST to MOST. The scales tried map the largest value to between SHARE percent of a
// range's end and a little beyond that end.
template <int LEAST, int MOST, int SHARE, int TRIES>
struct Whole {
  static constexpr float kMin = LEAST, kMax = MOST, kBeyond = 0.7f;
  static constexpr int kTries = TRIES, kShare = SHARE;
  static constexpr int kSides = LEAST == -MOST ? 1 : 2;
  template <class F>
  static F code(const F& y) {
    return nearest(clamped(y, LEAST, MOST));
  }
};

// The table values of IQ4_NL and IQ4_XS.
struct Iq4 {
  static constexpr float kMin = -127, kMax = 113, kBeyond = 10;
  static constexpr int kTries = 14, kShare = 66, kSides = 2;
  template <class F>
  static F code(const F& y) {
    F value = all<F>(kernels::kIq4Values[0]);
#pragma GCC unroll 16  // so that the constants are constants
    for (int i = 1; i < 16; ++i) {
      const float low = kernels::kIq4Values[i - 1], high = kernels::kIq4Values[i];
      value += y > all<F>((low + high) / 2) ? all<F>(high - low) : F{};
    }
    return value;
  }
};

// --- scale only: x = d * code

template <class F>
struct ScaleSums {
  F error{};   // sum of w (x - d c)^2
  F across{};  // sum of w c (x - d c)
  F along{};   // sum of w c^2
};

template <class Codes, class Rows, class F = typename Rows::F>
ScaleSums<F> measure(const Rows& rows, const F& d) {
  const F inverse = inverse_of(d);
  ScaleSums<F> s;
  for (int i = 0; i < Rows::kValues; ++i) {
    const F c = Codes::code(rows.x[i] * inverse);
    const F rest = rows.x[i] - d * c, wc = rows.w[i] * c;
    s.error += rows.w[i] * rest * rest;
    s.across += wc * rest;
    s.along += wc * c;
  }
  return s;
}

// Only the error, where nothing else is needed.
template <class Codes, class Rows, class F = typename Rows::F>
F error_of(const Rows& rows, const F& d) {
  const F inverse = inverse_of(d);
  F error{};
  for (int i = 0; i < Rows::kValues; ++i) {
    const F rest = rows.x[i] - d * Codes::code(rows.x[i] * inverse);
    error += rows.w[i] * rest * rest;
  }
  return error;
}

// The value farthest from zero.
template <class Rows, class F = typename Rows::F>
F peak_of(const Rows& rows) {
  F peak{};
  for (int i = 0; i < Rows::kValues; ++i) {
    peak = magnitude(rows.x[i]) > magnitude(peak) ? rows.x[i] : peak;
  }
  return magnitude(peak) < all<F>(kNothing) ? F{} : peak;
}

// The scale with the smallest error found. It may have either sign, because code ranges are not
// symmetric.
template <class Codes, class Rows, class F = typename Rows::F>
F fit_scale(const Rows& rows) {
  const F peak = peak_of(rows);
  F best{}, least = error_of<Codes>(rows, best);
  for (int side = 0; side < Codes::kSides; ++side) {
    const float end = side == 0 ? Codes::kMax : Codes::kMin;
    const float from = end * (static_cast<float>(Codes::kShare) / 100);
    const float to = end + (side == 0 ? Codes::kBeyond : -Codes::kBeyond);
    for (int i = 0; i < Codes::kTries; ++i) {
      const F d = peak / (from + (to - from) * static_cast<float>(i) / (Codes::kTries - 1));
      const ScaleSums<F> sums = measure<Codes>(rows, d);
      const F step = ratio(sums.across, sums.along), error = sums.error - sums.across * step;
      const auto better = (sums.along > F{}) & (error < least);
      least = better ? error : least;
      best = better ? d + step : best;
    }
  }
  for (int round = 0; round < 2; ++round) {  // with the codes that are nearest now
    const ScaleSums<F> sums = measure<Codes>(rows, best);
    best += best != F{} ? ratio(sums.across, sums.along) : F{};
  }
  return peak == F{} ? F{} : best;
}

// Rounds d to f16: the nearest, or where f16 is coarse, the neighbour with the smallest error.
template <class Errors, class F>
F stored_by(const Errors& error_of, const F& d) {
  const F near = as_stored(d);
  const auto few = (magnitude(d) < all<F>(kMinNormal)) & (d != F{});
  if (!any(few)) return near;
  F best = near, least = error_of(near);
  for (const float step : {-kMinStep, kMinStep}) {
    const F d_now = near + step, error = error_of(d_now);
    const auto better = few & (error < least);
    least = better ? error : least;
    best = better ? d_now : best;
  }
  return best;
}

// --- scale and offset: x = a * code + m, codes 0..MOST

template <class F>
struct Line {
  F a{}, m{};
};
template <class F>
struct LineSums {
  F error{};             // of the line: sum of w r^2, r = x - a c - m
  F rest{}, rest_c{};    // sums of w r, w r c
  F w{}, w_c{}, w_cc{};  // of w, w c, w c^2
};

template <int MOST, class F>
F line_code(const F& x, const Line<F>& line, const F& inverse) {
  return nearest(clamped((x - line.m) * inverse, 0, MOST));
}

template <int MOST, class Rows, class F = typename Rows::F>
LineSums<F> measure(const Rows& rows, const Line<F>& line) {
  const F inverse = inverse_of(line.a);
  LineSums<F> s;
  for (int i = 0; i < Rows::kValues; ++i) {
    const F c = line_code<MOST>(rows.x[i], line, inverse);
    const F r = rows.x[i] - (line.a * c + line.m), wr = rows.w[i] * r, wc = rows.w[i] * c;
    s.error += wr * r;
    s.rest += wr;
    s.rest_c += wr * c;
    s.w += rows.w[i];
    s.w_c += wc;
    s.w_cc += wc * c;
  }
  return s;
}

template <int MOST, class Rows, class F = typename Rows::F>
F error_of(const Rows& rows, const Line<F>& line) {
  const F inverse = inverse_of(line.a);
  F error{};
  for (int i = 0; i < Rows::kValues; ++i) {
    const F c = line_code<MOST>(rows.x[i], line, inverse);
    const F r = rows.x[i] - (line.a * c + line.m);
    error += rows.w[i] * r * r;
  }
  return error;
}

// The line through the same codes with the smallest error, with m <= 0 if `below`. Sets *error to
// its error.
template <class F>
Line<F> best_line(const Line<F>& line, const LineSums<F>& s, bool below, F* error) {
  const F area = s.w * s.w_cc - s.w_c * s.w_c;
  const auto spread = area > 1e-5f * s.w * s.w_cc;
  F da = spread ? ratio(s.w * s.rest_c - s.w_c * s.rest, area) : F{};
  F dm = spread ? ratio(s.w_cc * s.rest - s.w_c * s.rest_c, area) : ratio(s.rest, s.w);
  if (below) {
    const auto above = line.m + dm > F{};
    dm = above ? -line.m : dm;
    da = above ? ratio(s.rest_c - dm * s.w_c, s.w_cc) : da;
  }
  *error = s.error - 2.0f * (da * s.rest_c + dm * s.rest) + da * da * s.w_cc +
           2.0f * da * dm * s.w_c + dm * dm * s.w;
  return {line.a + da, line.m + dm};
}

template <int MOST, class Rows, class F = typename Rows::F>
Line<F> fit_line(const Rows& rows, bool below) {
  F low = rows.x[0], high = rows.x[0];
  for (int i = 1; i < Rows::kValues; ++i) {
    low = rows.x[i] < low ? rows.x[i] : low;
    high = rows.x[i] > high ? rows.x[i] : high;
  }
  if (below) low = low > F{} ? F{} : low;
  const auto flat = high - low < all<F>(kNothing);
  const F width = flat ? all<F>(1) : high - low;
  // The position of the codes within the values matters more than their spacing. At both ends,
  // positions before the first or last code and beyond it are tried: more finely for many codes,
  // and farther beyond for few.
  constexpr int kTries = MOST > 3 && MOST <= 15 ? 3 : 4;
  constexpr float kShort = MOST > 15 ? 0.7f : MOST > 3 ? 0.6f : 0.3f;  // codes
  constexpr float kBeyond = MOST > 15 ? 0.7f : MOST > 3 ? 0.6f : 0.9f;
  constexpr float kStep = (kShort + kBeyond) / (kTries - 1);
  Line<F> best{F{}, low};
  F least = all<F>(3e38f);
  for (int i = 0; i < kTries; ++i) {
    for (int k = 0; k < kTries; ++k) {
      const float first = kStep * static_cast<float>(i) - kBeyond;
      const float last = kStep * static_cast<float>(k) - kBeyond;
      Line<F> line{width * (1 / (MOST - first - last)), low};
      line.m -= line.a * first;
      if (below) line.m = line.m > F{} ? F{} : line.m;
      F error;
      line = best_line(line, measure<MOST>(rows, line), below, &error);
      const auto better = (error < least) & (line.a > F{});
      least = better ? error : least;
      best.a = better ? line.a : best.a;
      best.m = better ? line.m : best.m;
    }
  }
  for (int round = 0; round < 2; ++round) {
    F error;
    const Line<F> line = best_line(best, measure<MOST>(rows, best), below, &error);
    best.m = line.a > F{} ? line.m : best.m;
    best.a = line.a > F{} ? line.a : best.a;
  }
  return {flat ? F{} : best.a, flat ? low : best.m};
}

}  // namespace
}  // namespace sluice::convert
