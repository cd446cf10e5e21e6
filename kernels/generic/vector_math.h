// Elementary functions on vectors of floats. Polynomials are our own minimax fits (Lawson's
// iteration) with the relative error in the comment; the rest is the target's rounding. The others
// build on exp: the sigmoid forms of SiLU and GELU need no tanh and lose nothing to cancellation in
// the tails.
#pragma once

#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr float kNegativeInfinity = -__builtin_inff();

// e^x, about one ulp; 0 below -86.6, e^88.3 above 88.3, NaN for NaN. Cody-Waite reduction with a
// short high part, exact even without FMA; 3.1e-9 on [-ln 2 / 2, ln 2 / 2].
SLUICE_INLINE F32 exp(F32 x) {
  const F32 lowest = splat(-86.6f);
  const F32 magic = splat(12582912.0f);  // 1.5 * 2^23: rounds; the low bits are the integer
  const F32 y = max(lowest, min(splat(88.3f), x));
  const F32 t = mul_add(y, splat(1.44269504f), magic);
  const F32 n = t - magic;
  F32 r = neg_mul_add(n, splat(0.693359375f), y);
  r = mul_add(n, splat(2.12194440e-4f), r);
  F32 p = mul_add(r, splat(0.0013814318226650357f), splat(0.00836885254830122f));
  p = mul_add(p, r, splat(0.041668400168418884f));
  p = mul_add(p, r, splat(0.1666651964187622f));
  p = mul_add(p, r, splat(0.4999999403953552f));
  p = mul_add(p * r, r, r) + splat(1.0f);
  const F32 result = as_f32(as_i32(p) + shl<23>(as_i32(t)));
  return select(x < lowest, splat(0.0f), result);
}

SLUICE_INLINE float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(splat(x)));
  return lanes[0];
}

// 1 / (1 + e^-x).
SLUICE_INLINE F32 sigmoid_times(F32 x, F32 factor) {
  return factor / (splat(1.0f) + exp(splat(0.0f) - x));
}

SLUICE_INLINE F32 silu(F32 x) {
  return sigmoid_times(x, x);
}

// x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3); Hendrycks, Gimpel 2016.
SLUICE_INLINE F32 gelu_tanh(F32 x) {
  const F32 cubic = mul_add(x * x, splat(0.044715f), splat(1.0f));
  return sigmoid_times(splat(1.5957691216f) * x * cubic, x);
}

// x Phi(x), from the tail Phi(-a) = e^(-a^2/2) t Q(t), t = 1 / (1 + 0.2316419 a) (the form of
// Abramowitz and Stegun 26.2.17 with a longer Q, 1.3e-7).
SLUICE_INLINE F32 gelu_erf(F32 x) {
  const F32 a = abs(x);
  const F32 t = splat(1.0f) / mul_add(a, splat(0.2316419f), splat(1.0f));
  F32 q = mul_add(t, splat(-0.07042394578456879f), splat(0.2476857602596283f));
  q = mul_add(q, t, splat(-0.20165866613388062f));
  q = mul_add(q, t, splat(0.22525161504745483f));
  q = mul_add(q, t, splat(0.0135528314858675f));
  q = mul_add(q, t, splat(0.10265008360147476f));
  q = mul_add(q, t, splat(0.09042014181613922f));
  q = mul_add(q, t, splat(0.09252224862575531f));
  const F32 tail = exp(splat(-0.5f) * a * a) * (q * t);
  const F32 below = x * tail;
  return select(x < splat(0.0f), below, x - below);
}

// tanh: an odd polynomial near 0 (4.5e-9 up to 0.626), 1 - 2 / (e^2|x| + 1) beyond.
SLUICE_INLINE F32 tanh(F32 x) {
  const F32 a = abs(x);
  const F32 x2 = x * x;
  F32 p = mul_add(x2, splat(-0.005697381217032671f), splat(0.02063254453241825f));
  p = mul_add(p, x2, splat(-0.05373779684305191f));
  p = mul_add(p, x2, splat(0.13331420719623566f));
  p = mul_add(p, x2, splat(-0.3333328068256378f));
  const F32 near = mul_add(p * x2, x, x);
  const F32 far = splat(1.0f) - splat(2.0f) / (exp(a + a) + splat(1.0f));
  const F32 signed_far = select(x < splat(0.0f), splat(0.0f) - far, far);
  return select(a < splat(0.625f), near, signed_far);
}

// log(1 + u) for 0 <= u <= 1, as 2 artanh(s), s = u / (2 + u): an odd polynomial, 4.0e-9.
SLUICE_INLINE F32 log1p_of_fraction(F32 u) {
  const F32 s = u / (splat(2.0f) + u);
  const F32 s2 = s * s;
  F32 p = mul_add(s2, splat(0.2817833525744342f), splat(0.27960602676333046f));
  p = mul_add(p, s2, splat(0.40024910287540943f));
  p = mul_add(p, s2, splat(0.6666631468186132f));
  p = mul_add(p, s2, splat(2.0f));
  return p * s;
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
SLUICE_INLINE F32 softplus(F32 x) {
  return max(splat(0.0f), x) + log1p_of_fraction(exp(splat(0.0f) - abs(x)));
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
