// Integer sums for targets whose byte product gives 16-bit pair sums: as many as fit are added in
// 16 bits before they are widened, which halves the work or better for small codes. The target
// provides I16, no_pairs() for zero, pair_products(codes, quad), + and widen_pairs(I16).
#pragma once

#include "kernels/isa/vocabulary.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// Codes up to kMax times activations up to 127, two to a lane: how many quads stay inside 16 bits.
template <int kMax>
constexpr int kQuadsThatFit = 32767 / (2 * 127 * kMax) >= 8   ? 8
                              : 32767 / (2 * 127 * kMax) >= 4 ? 4
                                                              : 2;

template <int kEvery>
struct PairSum {
  I32 wide;
  I16 narrow;
};
template <int kMax, int kQuads>
using Sum = PairSum<kQuadsThatFit<kMax>>;
template <class S>
constexpr int kSettleEvery = 8;
template <int kEvery>
constexpr int kSettleEvery<PairSum<kEvery>> = kEvery;

template <class S>
SLUICE_INLINE S start(I32 offset) {
  return {offset, no_pairs()};
}
template <int kEvery>
SLUICE_INLINE PairSum<kEvery> dot(PairSum<kEvery> sum, const Codes& w, Quad x) {
  sum.narrow = sum.narrow + pair_products(w, x);
  return sum;
}
template <int kEvery>
SLUICE_INLINE void settle(PairSum<kEvery>& sum) {
  sum.wide = sum.wide + widen_pairs(sum.narrow);
  sum.narrow = no_pairs();
}
template <int kEvery>
SLUICE_INLINE I32 finish(const PairSum<kEvery>& sum) {
  return sum.wide;
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
