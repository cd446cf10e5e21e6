// Blocks of 256 values whose parts have whole-number scales of their own under one f16: first each
// part's best real scale, then the whole numbers near it that have the least error as decoded, then
// the f16 by least squares over all parts, and again while that helps.
#pragma once

#include "convert/fit.h"

namespace sluice::convert {
namespace {

constexpr int kSuper = kernels::kSuperBlock;

inline int whole(float x, int least, int most) {
  return static_cast<int>(nearest(clamped(x, static_cast<float>(least), static_cast<float>(most))));
}

// x = d * scale[i / N] * code
template <int N>
struct ScaledParts {
  static constexpr int kParts = kSuper / N;
  f16 d = 0;
  int scale[kParts] = {};
  float codes[kSuper] = {};
};

// Chooses the scales for d; returns the error, and the least-squares step of d in *step.
template <class Codes, int N, int LEAST, int MOST>
float choose_scales(const float* x, const float* w, float d, const float* wanted, int* scale,
                    float* step) {
  const float inverse = d == 0 ? 0 : 1 / d;
  float error = 0, across = 0, along = 0;
  for (int j = 0; j < kSuper / N; ++j) {
    const int near = whole(wanted[j] * inverse, LEAST, MOST);
    float least = 3e38f;
    for (int s = near - 1; s <= near + 1; ++s) {
      if (s < LEAST || s > MOST) continue;
      const float now = error_of<Codes, N>(x + j * N, w + j * N, d * static_cast<float>(s));
      if (now < least) {
        least = now;
        scale[j] = s;
      }
    }
    const float s = static_cast<float>(scale[j]);
    const ScaleSums best = measure<Codes, N>(x + j * N, w + j * N, d * s);
    error += best.error;
    across += s * best.across;
    along += s * s * best.along;
  }
  *step = along > 0 ? across / along : 0;
  return error;
}

template <class Codes, int N, int LEAST, int MOST>
void fit_parts(const float* x, const float* w, ScaledParts<N>* out) {
  constexpr int kParts = kSuper / N;
  float wanted[kParts];
  float peak = 0;
  for (int j = 0; j < kParts; ++j) {
    wanted[j] = fit_scale<Codes, N>(x + j * N, w + j * N);
    if (magnitude(wanted[j]) > magnitude(peak)) peak = wanted[j];
  }
  *out = {};
  if (peak == 0) return;
  float least = 3e38f;
  // The scale that is largest gets the lowest number, or one a little beyond it.
  for (const float end : {static_cast<float>(LEAST), LEAST * 1.06f, LEAST * 0.94f}) {
    float d = as_stored_away(peak / end);
    for (int round = 0; round < 3; ++round) {
      d = as_stored(d);
      int scale[kParts] = {};
      float step = 0;
      const float error = choose_scales<Codes, N, LEAST, MOST>(x, w, d, wanted, scale, &step);
      if (!(error < least)) break;
      least = error;
      out->d = to_f16(d);
      for (int j = 0; j < kParts; ++j) out->scale[j] = scale[j];
      d += step;
    }
  }
  const float d = from_f16(out->d);
  for (int j = 0; j < kParts; ++j) {
    const float a = d * static_cast<float>(out->scale[j]);
    const float inverse = a == 0 ? 0 : 1 / a;
    for (int i = 0; i < N; ++i) out->codes[j * N + i] = Codes::code(x[j * N + i] * inverse);
  }
}

// x = d * scale[i / N] * code - dmin * lowest[i / N]
template <int N>
struct LineParts {
  static constexpr int kParts = kSuper / N;
  f16 d = 0, dmin = 0;
  int scale[kParts] = {}, lowest[kParts] = {};
  float codes[kSuper] = {};
};

// The sums from which d and dmin follow by least squares.
struct PairSums {
  double error = 0, across_d = 0, across_m = 0, dd = 0, dm = 0, mm = 0;
};

inline Line line_of(float d, int s, float dmin, int m) {
  return {d * static_cast<float>(s), -(dmin * static_cast<float>(m))};
}

// Chooses scale and minimum of every part among the whole numbers about those in scale and lowest.
template <int MOST, int N, int LIMIT>
PairSums choose_lines(const float* x, const float* w, float d, float dmin, int* scale,
                      int* lowest) {
  PairSums all;
  for (int j = 0; j < kSuper / N; ++j) {
    float least = 3e38f;
    const int near_s = scale[j], near_m = lowest[j];
    for (int s = near_s - 1; s <= near_s + 1; ++s) {
      for (int m = near_m - 1; m <= near_m + 1; ++m) {
        if (s < 0 || s > LIMIT || m < 0 || m > LIMIT) continue;
        const float now = error_of<MOST, N>(x + j * N, w + j * N, line_of(d, s, dmin, m));
        if (!(now < least)) continue;
        least = now;
        scale[j] = s;
        lowest[j] = m;
      }
    }
    const LineSums best =
        measure<MOST, N>(x + j * N, w + j * N, line_of(d, scale[j], dmin, lowest[j]));
    const double s = scale[j], m = lowest[j];
    all.error += best.error;
    all.across_d += s * best.rest_c;
    all.across_m -= m * best.rest;
    all.dd += s * s * best.w_cc;
    all.dm -= s * m * best.w_c;
    all.mm += m * m * best.w;
  }
  return all;
}

template <int MOST, int N, int LIMIT>
void fit_line_parts(const float* x, const float* w, LineParts<N>* out) {
  constexpr int kParts = kSuper / N;
  Line wanted[kParts];
  float most_a = 0, most_m = 0;
  for (int j = 0; j < kParts; ++j) {
    wanted[j] = fit_line<MOST, N>(x + j * N, w + j * N, true);
    most_a = wanted[j].a > most_a ? wanted[j].a : most_a;
    most_m = -wanted[j].m > most_m ? -wanted[j].m : most_m;
  }
  *out = {};
  double least = 3e38;
  for (const float share : {1.0f, LIMIT > 15 ? 0.97f : 0.9f}) {
    float d = as_stored_away(most_a * share / LIMIT);
    float dmin = as_stored_away(most_m * share / LIMIT);
    int scale[kParts], lowest[kParts];
    for (int j = 0; j < kParts; ++j) {
      scale[j] = d == 0 ? 0 : whole(wanted[j].a / d, 0, LIMIT);
      lowest[j] = dmin == 0 ? 0 : whole(-wanted[j].m / dmin, 0, LIMIT);
    }
    for (int round = 0; round < 3; ++round) {
      const PairSums s = choose_lines<MOST, N, LIMIT>(x, w, d, dmin, scale, lowest);
      if (!(s.error < least)) break;
      least = s.error;
      out->d = to_f16(d);
      out->dmin = to_f16(dmin);
      for (int j = 0; j < kParts; ++j) {
        out->scale[j] = scale[j];
        out->lowest[j] = lowest[j];
      }
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
  const float d = from_f16(out->d), dmin = from_f16(out->dmin);
  for (int j = 0; j < kParts; ++j) {
    const float a = d * static_cast<float>(out->scale[j]);
    const float m = -(dmin * static_cast<float>(out->lowest[j]));
    const float inverse = a == 0 ? 0 : 1 / a;
    for (int i = 0; i < N; ++i) {
      out->codes[j * N + i] = nearest(clamped((x[j * N + i] - m) * inverse, 0, MOST));
    }
  }
}

}  // namespace
}  // namespace sluice::convert
