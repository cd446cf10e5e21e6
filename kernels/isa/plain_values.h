// Stores quantized activations in the layout of the target's block. For compilers that vectorize
// these loops.
#pragma once

#include "kernels/isa/act_block.h"
#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

SLUICE_INLINE void store_values(const int32_t* q, ActBlock8& b) {
  for (int i = 0; i < kActValues; ++i) b.q[i] = static_cast<int8_t>(q[i]);
}
SLUICE_INLINE void store_values(const int32_t* q, ActBlock16& b) {
  for (int i = 0; i < kActValues; i += 4) {
    b.q16[i] = static_cast<int16_t>(q[i]);
    b.q16[i + 1] = static_cast<int16_t>(q[i + 2]);
    b.q16[i + 2] = static_cast<int16_t>(q[i + 1]);
    b.q16[i + 3] = static_cast<int16_t>(q[i + 3]);
  }
}
// sums[h][k]: the sum over columns 2k and 2k + 1 of every four in half h.
SLUICE_INLINE void put_values(const I32 (&rounded)[kActValues / kLanes], ActBlock& out,
                              int32_t (&sums)[2][2]) {
  int32_t q[kActValues];
  SLUICE_UNROLL for (int i = 0; i < kActValues / kLanes; ++i) store(q + i * kLanes, rounded[i]);
  store_values(q, out);
  for (int h = 0; h < 2; ++h) {
    sums[h][0] = sums[h][1] = 0;
    for (int i = kActValues / 2 * h; i < kActValues / 2 * (h + 1); i += 4) {
      sums[h][0] += q[i] + q[i + 1];
      sums[h][1] += q[i + 2] + q[i + 3];
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
