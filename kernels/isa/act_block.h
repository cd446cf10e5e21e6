// Quantized activations as the kernels read them. A block has, per 32 values, the integers and all
// that scales, offsets and minimums need, in one or two cache lines, so a kernel finds a sub-block
// at one address. Each target chooses its block type. Plain data only (see blocks.h).
#pragma once

#include <cstdint>

namespace sluice::kernels {

inline constexpr int kActValues = 32;

// Sums are stored negated. An unsigned code w + c is multiplied with the accumulator started at
// c * (-sum), so if c is a power of two an offset costs one shift of `nsum`.
struct ActMeta {
  float d;            // x[i] ~ d * q[i]
  float dsum;         // d * sum(q)
  int32_t nsum;       // -sum(q)
  int32_t nsum16[2];  // -sum of each half, encoded by the target's half_word
  float dsum16[2];    // d * sum of each half
  int32_t super;      // for eight blocks: dsum in 16 bits, two blocks a word, then their scale
};
static_assert(sizeof(ActMeta) == 32);

struct ActBlock8 {
  int8_t q[32];
  ActMeta m;
};
static_assert(sizeof(ActBlock8) == 64);

// 16-bit integers, each group of four in the order 0, 2, 1, 3. Splitting a vector of bytes into
// even and odd 16-bit lanes costs a mask and a shift, and this order makes the pairs match.
struct ActBlock16 {
  int16_t q16[32];
  ActMeta m;
};
static_assert(sizeof(ActBlock16) == 96);

}  // namespace sluice::kernels
