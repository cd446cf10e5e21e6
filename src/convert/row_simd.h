// SIMD vectors over rows: lane l of every vector belongs to row l. Sums across lanes occur only
// where rows of one block are combined. So every instruction set does the same arithmetic in the
// same order and writes the same bytes. Each instruction set's source includes this file;
// everything in it is internal, and floating-point contraction is off.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "kernels/blocks.h"
#include "kernels/reference/reference.h"

namespace sluice::convert {
namespace {

using kernels::f16;

template <int L>
struct RowSimd {
  typedef float F __attribute__((vector_size(4 * L)));
};
template <int L>
using Lanes = typename RowSimd<L>::F;
template <class F>
constexpr int kLanes = static_cast<int>(sizeof(F) / 4);

template <class F>
F all(float x) {
  return F{} + x;
}
template <class F>
F clamped(const F& x, float least, float most) {
  const F low = all<F>(least), high = all<F>(most);
  const F raised = x < low ? low : x;
  return raised > high ? high : raised;
}
// Rounds to nearest, ties to even, for |x| < 2^22: the added constant leaves no fraction bits.
template <class F>
F nearest(const F& x) {
  return (x + 12582912.0f) - 12582912.0f;
}
template <class F>
F magnitude(const F& x) {
  return x < F{} ? -x : x;
}
// y / x, or zero if x is zero.
template <class F>
F ratio(const F& y, const F& x) {
  const F safe = x == F{} ? all<F>(1) : x;
  return x == F{} ? F{} : y / safe;
}
template <class F>
F inverse_of(const F& x) {
  return ratio(all<F>(1), x);
}
template <class F>
F root(const F& x) {
  float at[kLanes<F>];
  std::memcpy(at, &x, sizeof at);
  for (float& v : at) v = __builtin_sqrtf(v);
  F y;
  std::memcpy(&y, at, sizeof at);
  return y;
}
template <class F>
float sum_of(const F& x) {
  float at[kLanes<F>];
  std::memcpy(at, &x, sizeof at);
  for (int n = kLanes<F> / 2; n > 0; n /= 2) {
    for (int l = 0; l < n; ++l) at[l] += at[l + n];
  }
  return at[0];
}
template <class F>
float max_of(const F& x) {
  float most = x[0];
  for (int l = 1; l < kLanes<F>; ++l) most = x[l] > most ? x[l] : most;
  return most;
}
template <class Mask>
bool any(const Mask& mask) {
  int32_t found = 0;
  for (size_t l = 0; l < sizeof mask / 4; ++l) found |= mask[l];
  return found != 0;
}

inline float size_of(float x) {
  return x < 0 ? -x : x;
}

// --- scales as f16

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

// Converts to IEEE binary16, to nearest, ties to even. Values that are too large become infinite.
inline f16 to_f16(float x) {
  const uint32_t sign = bits_of(x) >> 16 & 0x8000u;
  const float a = float_of(bits_of(x) & 0x7fffffffu);
  if (!(a < 65520.0f)) return static_cast<f16>(sign | 0x7c00u);
  // Adding 2^k whose last place is the wanted unit rounds to that unit.
  const uint32_t exponent = bits_of(a) >> 23;
  const uint32_t least = 127 - 14;  // below this all values have the subnormal unit 2^-24
  const uint32_t at = exponent < least ? least : exponent;
  const float magic = float_of((at + 13) << 23);
  const uint32_t steps = bits_of(a + magic) - bits_of(magic);
  return static_cast<f16>(sign | (((at - least) << 10) + steps));
}
inline float from_f16(f16 h) {
  return kernels::reference::f16_to_f32(h);
}
// The value that is decoded if `x` is stored as an f16 scale.
inline float as_stored(float x) {
  return from_f16(to_f16(x));
}
template <class F>
F as_stored(const F& x) {
  F y{};
  for (int l = 0; l < kLanes<F>; ++l) y[l] = as_stored(x[l]);
  return y;
}
// Below this the nearest f16 may be far from the value, or zero.
constexpr float kMinNormal = 0x1p-14f, kMinStep = 0x1p-24f;
// For a scale of scales. If it is too large, the scales below it become smaller; too small cannot
// be corrected. So it is rounded away from zero where f16 has few digits.
inline float as_stored_away(float x) {
  const f16 h = to_f16(x);
  const float stored = from_f16(h);
  const bool less = size_of(stored) < size_of(x) && size_of(x) < kMinNormal;
  return less ? from_f16(static_cast<f16>(h + 1)) : stored;
}

}  // namespace
}  // namespace sluice::convert
