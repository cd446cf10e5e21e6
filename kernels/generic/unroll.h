// Loops whose index must be a constant expression, because it selects a shift. Everything else uses
// SLUICE_UNROLL, which costs the compiler far less.
//   unroll<4>([&](auto i) SLUICE_INLINE_LAMBDA { constexpr int n = decltype(i)::value; ... });
#pragma once

#include "kernels/isa/simd_interface.h"

#define SLUICE_INLINE_LAMBDA __attribute__((always_inline))

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// An integer constant as a type, usable as an index.
template <int kValue>
struct Int {
  static constexpr int value = kValue;
  constexpr operator int() const { return kValue; }
};

template <int kBegin, int kEnd, class F>
SLUICE_INLINE void unroll_range(const F& f) {
  if constexpr (kBegin < kEnd) {
    f(Int<kBegin>{});
    unroll_range<kBegin + 1, kEnd>(f);
  }
}
// f(Int<0>{}) ... f(Int<kCount - 1>{}).
template <int kCount, class F>
SLUICE_INLINE void unroll(const F& f) {
  unroll_range<0, kCount>(f);
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
