// Quantized activations as the kernels read them: per 32 values the integers and everything that
// scales, offsets and minimums need, in a cache line or two, so that a kernel finds a sub-block at
// one address. Which form a target uses is its own business. Plain data only (see blocks.h).
#pragma once

#include <cstdint>

namespace sluice::kernels {

inline constexpr int kActValues = 32;

// Sums are stored negated: an unsigned code w + c multiplies with the accumulator started at
// c * (-sum), so an offset costs one shift of `nsum` when c is a power of two.
struct ActMeta {
  float d;            // x[i] ~ d * q[i]
  float dsum;         // d * sum(q)
  int32_t nsum;       // -sum(q)
  int32_t nsum16[2];  // -sum of each half, as the target's half_word wants it
  float dsum16[2];    // d * sum of each half
  int32_t super;  // eight blocks: their dsum in 16 bits, two to a block, then the scale of these
};
static_assert(sizeof(ActMeta) == 32);

struct ActBlock8 {
  int8_t q[32];
  ActMeta m;
};
static_assert(sizeof(ActBlock8) == 64);

// 16-bit integers, each group of four in the order 0, 2, 1, 3: splitting a vector of bytes into
// even and odd 16-bit lanes costs a mask and a shift, and this order makes the pairs match.
struct ActBlock16 {
  int16_t q16[32];
  ActMeta m;
};
static_assert(sizeof(ActBlock16) == 96);

}  // namespace sluice::kernels
