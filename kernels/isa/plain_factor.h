// The integer scales of a vector of sub-blocks, in the form that finish() of whole_sum.h multiplies
// by. For targets that load bytes as f32 as fast as any other type.
#pragma once

#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

SLUICE_INLINE F32 load_factor(const uint8_t* p) {
  return load_bits<0, 255>(p);
}
SLUICE_INLINE F32 load_signed_factor(const uint8_t* p) {
  return load_s8(p);
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
