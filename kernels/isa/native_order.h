// For targets whose compiler emits machine code directly and orders it well. What WebAssembly needs
// to keep the order of code (wasm_common.h) is almost nothing here.
#pragma once

#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// Activations of several tokens need no shared load: a broadcast is part of a dot product, or free.
constexpr bool kTiledActs = false;
// Called between quads, where a compiler would keep too many of them in registers at once.
SLUICE_INLINE void keep_order() {}
template <class Vector>
SLUICE_INLINE void keep(Vector&) {}
// Returns p. Stops the compiler from keeping what one part of a block loaded until another needs
// it.
template <int>
SLUICE_INLINE const uint8_t* again(const uint8_t* p) {
  asm("" : "+r"(p));
  return p;
}

SLUICE_INLINE const uint8_t* anchor(const uint8_t* p) {
  return p;
}
constexpr int kMaxSums = 16;

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
