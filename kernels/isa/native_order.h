// For targets whose compiler makes the machine's code itself and orders it well: what WebAssembly
// needs to hold an order (wasm_common.h) is next to nothing here.
#pragma once

#include "kernels/isa/simd_interface.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// Activations of several tokens need no common load: a broadcast is part of a product, or free.
constexpr bool kTiledActs = false;
// Between quads, where a compiler would keep too many of them in registers at once.
SLUICE_INLINE void keep_order() {}
template <class Vector>
SLUICE_INLINE void keep(Vector&) {}
// p, where a compiler would keep what was loaded for one part of a block until another needs it.
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
