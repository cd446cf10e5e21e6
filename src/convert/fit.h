// How a run of N values becomes small whole numbers with a scale: many scales are tried, the best
// is refined by least squares, and the error that decides is the one of the values as they are
// decoded. Nothing is taken from the largest value but where the search begins. Included by one
// source for each instruction set: everything is internal to it, sums go through 16 lanes in a
// fixed order and nothing is contracted, so that every target writes the same bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "kernels/blocks.h"
#include "kernels/reference/reference.h"

namespace sluice::convert {
namespace {

using kernels::f16;

constexpr int kLanes = 16;
constexpr float kNothing = 1e-30f;  // what is smaller than this everywhere is stored as zero

using Eight = float __attribute__((vector_size(32)));
using Four = float __attribute__((vector_size(16)));

struct Lanes {
  float at[kLanes] = {};
  // Halves, quarters...: the order does not depend on what the target's registers hold.
  [[nodiscard]] float sum() const {
    Eight low, high;
    std::memcpy(&low, at, sizeof low);
    std::memcpy(&high, at + kLanes / 2, sizeof high);
    low += high;
    const Four half = __builtin_shufflevector(low, low, 0, 1, 2, 3) +
                      __builtin_shufflevector(low, low, 4, 5, 6, 7);
    return (half[0] + half[2]) + (half[1] + half[3]);
  }
};

inline float clamped(float x, float least, float most) {
  x = x < least ? least : x;
  return x > most ? most : x;
}
// To nearest, ties to even, for |x| < 2^22: by the addition that leaves no bits behind the point.
inline float nearest(float x) {
  return (x + 12582912.0f) - 12582912.0f;
}
inline float magnitude(float x) {
  return x < 0 ? -x : x;
}

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// IEEE binary16 to nearest, ties to even; what is too large becomes infinite.
inline f16 to_f16(float x) {
  const uint32_t sign = bits_of(x) >> 16 & 0x8000u;
  const float a = float_of(bits_of(x) & 0x7fffffffu);
  if (!(a < 65520.0f)) return static_cast<f16>(sign | 0x7c00u);
  // Adding 2^k with the wanted unit in its last place rounds to that unit.
  const uint32_t exponent = bits_of(a) >> 23;
  const uint32_t least = 127 - 14;  // below that all have the unit of subnormal numbers, 2^-24
  const uint32_t at = exponent < least ? least : exponent;
  const float magic = float_of((at + 13) << 23);
  const uint32_t steps = bits_of(a + magic) - bits_of(magic);
  return static_cast<f16>(sign | (((at - least) << 10) + steps));
}
inline float from_f16(f16 h) {
  return kernels::reference::f16_to_f32(h);
}
// The value that is stored where `x` is wanted as a scale.
inline float as_stored(float x) {
  return from_f16(to_f16(x));
}
// Below this the f16 that is nearest may be far from what is wanted, or zero.
constexpr float kLeastNormal = 0x1p-14f;
// For a scale of scales, which may be too large, because the numbers under it become smaller for
// it, but not too small: away from zero where f16 has few digits.
inline float as_stored_away(float x) {
  const f16 h = to_f16(x);
  const float stored = from_f16(h);
  const bool less = magnitude(stored) < magnitude(x) && magnitude(x) < kLeastNormal;
  return less ? from_f16(static_cast<f16>(h + 1)) : stored;
}

// --- codes: which whole numbers (or table entries) a type has, and where to look for its scale

// Whole numbers from LEAST to MOST. Scales are tried that map the largest value to between
// SHARE percent of a range's end and a little beyond that end.
template <int LEAST, int MOST, int SHARE, int TRIES>
struct Whole {
  static constexpr float kLeast = LEAST, kMost = MOST, kBeyond = 0.7f;
  static constexpr int kTries = TRIES, kShare = SHARE;
  static float code(float y) { return nearest(clamped(y, LEAST, MOST)); }
};

// The values of IQ4_NL and IQ4_XS.
struct Iq4 {
  static constexpr float kLeast = -127, kMost = 113, kBeyond = 10;
  static constexpr int kTries = 14, kShare = 66;
  static float code(float y) {
    float value = kernels::kIq4Values[0];
    for (int i = 1; i < 16; ++i) {
      const float low = kernels::kIq4Values[i - 1], high = kernels::kIq4Values[i];
      value += y > (low + high) / 2 ? high - low : 0.0f;
    }
    return value;
  }
};

// --- a scale alone: x = d * code

struct ScaleSums {
  float error = 0;   // of d: sum of w (x - d c)^2
  float across = 0;  // sum of w c (x - d c)
  float along = 0;   // sum of w c^2
};

template <class Codes, int N>
ScaleSums measure(const float* x, const float* w, float d) {
  const float inverse = d == 0 ? 0 : 1 / d;
  Lanes error, across, along;
  for (int i = 0; i < N; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const float c = Codes::code(x[i + l] * inverse);
      const float rest = x[i + l] - d * c, wc = w[i + l] * c;
      error.at[l] += w[i + l] * rest * rest;
      across.at[l] += wc * rest;
      along.at[l] += wc * c;
    }
  }
  return {error.sum(), across.sum(), along.sum()};
}

// The error alone, where only that decides.
template <class Codes, int N>
float error_of(const float* x, const float* w, float d) {
  const float inverse = d == 0 ? 0 : 1 / d;
  Lanes error;
  for (int i = 0; i < N; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const float rest = x[i + l] - d * Codes::code(x[i + l] * inverse);
      error.at[l] += w[i + l] * rest * rest;
    }
  }
  return error.sum();
}

template <int N>
float peak_of(const float* x) {
  float peak = 0;
  for (int i = 0; i < N; ++i) peak = magnitude(x[i]) > magnitude(peak) ? x[i] : peak;
  return peak;
}

// The scale with the least error, as far as the search finds it; either sign, because ranges of
// codes are not symmetric.
template <class Codes, int N>
float fit_scale(const float* x, const float* w) {
  const float peak = peak_of<N>(x);
  if (magnitude(peak) < kNothing) return 0;
  float best = 0, least = error_of<Codes, N>(x, w, 0);
  for (int side = 0; side < 2; ++side) {
    const float end = side == 0 ? Codes::kMost : Codes::kLeast;
    const float from = end * (static_cast<float>(Codes::kShare) / 100);
    const float to = end + (side == 0 ? Codes::kBeyond : -Codes::kBeyond);
    for (int i = 0; i < Codes::kTries; ++i) {
      const float at = from + (to - from) * static_cast<float>(i) / (Codes::kTries - 1);
      const ScaleSums sums = measure<Codes, N>(x, w, peak / at);
      if (!(sums.along > 0)) continue;
      const float error = sums.error - sums.across * sums.across / sums.along;
      if (error < least) {
        least = error;
        best = peak / at + sums.across / sums.along;
      }
    }
  }
  for (int round = 0; round < 2 && best != 0; ++round) {  // the codes that now are nearest
    const ScaleSums sums = measure<Codes, N>(x, w, best);
    if (sums.along > 0) best += sums.across / sums.along;
  }
  return best;
}

// The f16 for d: the nearest, and where few are near, the one with the least error.
template <class Codes, int N>
f16 stored_scale(const float* x, const float* w, float d) {
  const f16 near = to_f16(d);
  if (d == 0 || magnitude(d) >= kLeastNormal) return near;
  f16 best = near;
  float least = 3e38f;
  for (int step = -1; step <= 1; ++step) {
    if ((near & 0x7fff) + step < 0) continue;
    const f16 h = static_cast<f16>(near + step);
    const float error = error_of<Codes, N>(x, w, from_f16(h));
    if (error < least) {
      least = error;
      best = h;
    }
  }
  return best;
}

// --- a scale and an offset: x = a * code + m, codes 0..MOST

struct Line {
  float a = 0, m = 0;
};
struct LineSums {
  float error = 0;                 // of the line: sum of w r^2, r = x - a c - m
  float rest = 0, rest_c = 0;      // sums of w r, w r c
  float w = 0, w_c = 0, w_cc = 0;  // of w, w c, w c^2
};

template <int MOST, int N>
LineSums measure(const float* x, const float* w, Line line) {
  const float inverse = line.a == 0 ? 0 : 1 / line.a;
  Lanes error, rest, rest_c, s, s_c, s_cc;
  for (int i = 0; i < N; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const float c = nearest(clamped((x[i + l] - line.m) * inverse, 0, MOST));
      const float r = x[i + l] - (line.a * c + line.m), wi = w[i + l], wr = wi * r, wc = wi * c;
      error.at[l] += wr * r;
      rest.at[l] += wr;
      rest_c.at[l] += wr * c;
      s.at[l] += wi;
      s_c.at[l] += wc;
      s_cc.at[l] += wc * c;
    }
  }
  return {error.sum(), rest.sum(), rest_c.sum(), s.sum(), s_c.sum(), s_cc.sum()};
}

template <int MOST, int N>
float error_of(const float* x, const float* w, Line line) {
  const float inverse = line.a == 0 ? 0 : 1 / line.a;
  Lanes error;
  for (int i = 0; i < N; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const float c = nearest(clamped((x[i + l] - line.m) * inverse, 0, MOST));
      const float r = x[i + l] - (line.a * c + line.m);
      error.at[l] += w[i + l] * r * r;
    }
  }
  return error.sum();
}

// The line through the same codes with the least error, with m <= 0 where `below` says so.
// *error becomes its error.
inline Line best_line(Line line, const LineSums& s, bool below, float* error) {
  double da = 0, dm = s.w > 0 ? s.rest / s.w : 0;
  const double area = static_cast<double>(s.w) * s.w_cc - static_cast<double>(s.w_c) * s.w_c;
  if (area > 1e-7 * static_cast<double>(s.w) * s.w_cc) {
    da = (static_cast<double>(s.w) * s.rest_c - static_cast<double>(s.w_c) * s.rest) / area;
    dm = (static_cast<double>(s.w_cc) * s.rest - static_cast<double>(s.w_c) * s.rest_c) / area;
  }
  if (below && line.m + dm > 0) {
    dm = -static_cast<double>(line.m);
    da = s.w_cc > 0 ? (s.rest_c - dm * s.w_c) / s.w_cc : 0;
  }
  *error = static_cast<float>(s.error - 2 * (da * s.rest_c + dm * s.rest) + da * da * s.w_cc +
                              2 * da * dm * s.w_c + dm * dm * s.w);
  return {static_cast<float>(line.a + da), static_cast<float>(line.m + dm)};
}

template <int MOST, int N>
Line fit_line(const float* x, const float* w, bool below) {
  float low = x[0], high = x[0];
  for (int i = 1; i < N; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  if (below && low > 0) low = 0;
  if (high - low < kNothing) return {0, low};
  constexpr int kTries = MOST > 7 ? 10 : 14;
  constexpr float kFrom = MOST > 15 ? 0.8f : MOST > 7 ? 0.65f : 0.4f, kTo = 1.08f;
  Line best{0, low};
  float least = 3e38f;
  for (int i = 0; i < kTries; ++i) {
    const float share = kFrom + (kTo - kFrom) * static_cast<float>(i) / (kTries - 1);
    Line line{(high - low) * share / MOST, low + (high - low) * (1 - share) / 2};
    if (below && line.m > 0) line.m = 0;
    float error = 0;
    line = best_line(line, measure<MOST, N>(x, w, line), below, &error);
    if (error < least && line.a > 0) {
      least = error;
      best = line;
    }
  }
  for (int round = 0; round < 3; ++round) {
    float error = 0;
    const Line line = best_line(best, measure<MOST, N>(x, w, best), below, &error);
    if (!(line.a > 0)) break;
    best = line;
  }
  return best;
}

// The f16 for a, with m as it is stored: as stored_scale.
template <int MOST, int N>
f16 stored_slope(const float* x, const float* w, float a, float m) {
  const f16 near = to_f16(a);
  if (a == 0 || magnitude(a) >= kLeastNormal) return near;
  f16 best = near;
  float least = 3e38f;
  for (int step = -1; step <= 1; ++step) {
    if ((near & 0x7fff) + step < 0) continue;
    const f16 h = static_cast<f16>(near + step);
    const float error = error_of<MOST, N>(x, w, Line{from_f16(h), m});
    if (error < least) {
      least = error;
      best = h;
    }
  }
  return best;
}

}  // namespace
}  // namespace sluice::convert
