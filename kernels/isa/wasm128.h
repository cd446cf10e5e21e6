// SIMD operations for WebAssembly SIMD128: products in 16-bit lanes, two per 32-bit sum. Splitting
// a vector of codes into even and odd bytes costs a mask and a shift, less than widening both
// operands for every product.
#pragma once

#include "kernels/isa/wasm_common.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr const char* kTargetName = "wasm128";

SLUICE_INLINE F32 mul_add(F32 a, F32 b, F32 c) {
  return a * b + c;
}
SLUICE_INLINE F32 neg_mul_add(F32 a, F32 b, F32 c) {
  return c - a * b;
}
SLUICE_INLINE Bytes lookup16(const int8_t* table, Bytes a) {
  return {wasm_i8x16_swizzle(wasm_v128_load(table), a.v)};
}

// All sums run together: a quad takes two registers and is best read once for all of them.
constexpr int kMaxSums = 8;
using ActBlock = ActBlock16;
using Quad = Pairs;
SLUICE_INLINE Quad load_quad(const ActBlock& x, int j) {
  return load_pairs(x.q16, j);
}
SLUICE_INLINE Quad load_row(const ActBlock& x, int half) {
  return load_row_pairs(x.q16, half);
}
constexpr bool kTiledActs = false;
using Codes = Pairs;
SLUICE_INLINE Codes prepare(Bytes a) {
  return split_unsigned(a);
}
SLUICE_INLINE I32 dot(I32 sum, const Codes& w, Quad x) {
  sum = dot_pairs(sum, w, x);
  keep(sum);
  return sum;
}

using SignedQuad = Pairs;
SLUICE_INLINE SignedQuad load_signed_row(const ActBlock& x, int half) {
  return load_row(x, half);
}
using SignedCodes = Pairs;
SLUICE_INLINE SignedQuad load_signed_quad(const ActBlock& x, int j) {
  return load_quad(x, j);
}
SLUICE_INLINE SignedCodes prepare_signed(Bytes a) {
  return split_signed(a);
}
SLUICE_INLINE I32 signed_offset(const int32_t&) {
  return splat_i32(0);
}
SLUICE_INLINE I32 dot_signed(I32 sum, const SignedCodes& w, SignedQuad x) {
  sum = dot_pairs(sum, w, x);
  keep(sum);
  return sum;
}

// Codes of quad j, 0 to 127, times activations, negated where `negative` has all bits of a byte
// set.
SLUICE_INLINE I32 dot_negated(I32 sum, Bytes w, Bytes negative, const ActBlock& x, int j) {
  return dot_signed(sum, prepare_signed(negate_where(w, negative)), load_signed_quad(x, j));
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET

#include "kernels/isa/plain_factor.h"
#include "kernels/isa/whole_sum.h"
// Included last, because it uses the sums:
// clang-format off
#include "kernels/isa/four_lanes.h"
