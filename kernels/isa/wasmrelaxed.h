// SIMD operations for WebAssembly with relaxed SIMD. clang 14 does not know the instructions: they
// are imported functions whose one-line bodies (relaxed.wat) the build merges in and inlines. The
// second operand of the dot product has one meaning on all engines only in 0..127. Beyond, a single
// instruction treats it as signed or unsigned. That is tested once, and signed codes are then
// stored as w or as w + 128. An engine that does neither is unsupported (runs_here). With
// SLUICE_PAIR_SUMS (wasmrelaxed16) the dot product in 16-bit pairs is used. Where a CPU lacks the
// four-way instruction, an engine emulates it with five, but the pairs with one or two. It runs
// everywhere: signed codes take the 16-bit path of wasm128, and activations are widened on the way.
#pragma once

#include "kernels/isa/relaxed_imports.h"
#include "kernels/isa/wasm_common.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

#if defined(SLUICE_PAIR_SUMS)
constexpr const char* kTargetName = "wasmrelaxed16";
#else
constexpr const char* kTargetName = "wasmrelaxed";
#endif

SLUICE_INLINE F32 mul_add(F32 a, F32 b, F32 c) {
  return {relaxed_madd(a.v, b.v, c.v)};
}
SLUICE_INLINE F32 neg_mul_add(F32 a, F32 b, F32 c) {
  return {relaxed_nmadd(a.v, b.v, c.v)};
}
SLUICE_INLINE Bytes lookup16(const int8_t* table, Bytes a) {
  return {relaxed_swizzle(wasm_v128_load(table), a.v)};
}
// The bytes of a at indices 0 to 15.
#define SLUICE_PERMUTE 1
SLUICE_INLINE Bytes permute(Bytes a, const int8_t (&at)[16]) {
  return {relaxed_swizzle(a.v, opaque(at))};
}

// Four sums, their masks and codes fill the x86 registers, so further vectors of rows run one by
// one.
constexpr int kMaxSums = 4;
using ActBlock = ActBlock8;
using Quad = Bytes;
SLUICE_INLINE Quad load_quad(const ActBlock& x, int j) {
  return {wasm_v128_load32_splat(x.q + 4 * j)};
}
SLUICE_INLINE Quad load_row(const ActBlock& x, int half) {
  return {wasm_v128_load(x.q + 16 * half)};
}
constexpr bool kTiledActs = true;
SLUICE_INLINE Bytes load_quad_tile(const ActBlock& x, int part) {
  return {wasm_v128_load(x.q + 16 * part)};
}
SLUICE_INLINE Quad quad_of(Bytes tile, int token) {
  return {splat_lane(tile.v, token)};
}
using Codes = Bytes;
SLUICE_INLINE Codes prepare(Bytes a) {
  return a;
}
#if defined(SLUICE_PAIR_SUMS)
SLUICE_INLINE I16 no_pairs() {
  return {wasm_i16x8_const_splat(0)};
}
SLUICE_INLINE I16 operator+(I16 a, I16 b) {
  return {wasm_i16x8_add(a.v, b.v)};
}
SLUICE_INLINE I16 pair_products(const Codes& w, Quad x) {
  return {relaxed_dot16(x.v, w.v)};
}
SLUICE_INLINE I32 widen_pairs(I16 a) {
  return {wasm_i32x4_extadd_pairwise_i16x8(a.v)};
}
template <int kBits>
SLUICE_INLINE I16 shl(I16 a) {
  return {wasm_i16x8_shl(a.v, kBits)};
}
// One swizzle moves bytes to pairs of equal 16-bit lanes; byte 15 is zero.
alignas(16) inline constexpr int8_t kTwice[16] = {0, 15, 0, 15, 1, 15, 1, 15,
                                                  2, 15, 2, 15, 3, 15, 3, 15};
alignas(16) inline constexpr int8_t kTwiceHigh[16] = {15, 0, 15, 0, 15, 1, 15, 1,
                                                      15, 2, 15, 2, 15, 3, 15, 3};
SLUICE_INLINE I16 load_factor(const uint8_t* p) {
  return {relaxed_swizzle(wasm_v128_load32_zero(p), opaque(kTwice))};
}
SLUICE_INLINE I16 load_signed_factor(const uint8_t* p) {
  return {wasm_i16x8_shr(relaxed_swizzle(wasm_v128_load32_zero(p), opaque(kTwiceHigh)), 8)};
}
#else
SLUICE_INLINE I32 dot(I32 sum, const Codes& w, Quad x) {
  sum.v = relaxed_dot(x.v, w.v, sum.v);
  keep(sum);
  return sum;
}
alignas(16) inline constexpr int8_t kOnce[16] = {0, 15, 15, 15, 1, 15, 15, 15,
                                                 2, 15, 15, 15, 3, 15, 15, 15};
alignas(16) inline constexpr int8_t kOnceHigh[16] = {15, 15, 15, 0, 15, 15, 15, 1,
                                                     15, 15, 15, 2, 15, 15, 15, 3};
SLUICE_INLINE F32 load_factor(const uint8_t* p) {
  return to_f32({relaxed_swizzle(wasm_v128_load32_zero(p), opaque(kOnce))});
}
SLUICE_INLINE F32 load_signed_factor(const uint8_t* p) {
  const v128_t high = relaxed_swizzle(wasm_v128_load32_zero(p), opaque(kOnceHigh));
  return to_f32({wasm_i32x4_shr(high, 24)});
}
#endif

#if defined(SLUICE_PAIR_SUMS)
using SignedQuad = Pairs;
SLUICE_INLINE SignedQuad signed_quad_of(const Pairs& tile, int token) {
  return {splat_lane(tile.even, token), splat_lane(tile.odd, token)};
}
SLUICE_INLINE SignedQuad load_signed_row(const ActBlock& x, int half) {
  return split_signed(load_row(x, half));
}
using SignedCodes = Pairs;
SLUICE_INLINE SignedQuad load_signed_quad(const ActBlock& x, int j) {
  return signed_quad_of(split_signed(load_row(x, j / 4)), j % 4);
}
SLUICE_INLINE Pairs load_signed_quad_tile(const ActBlock& x, int part) {
  return split_signed(load_quad_tile(x, part));
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
#else
// `flip` is 0x80 in every byte if the dot product treats its second operand as unsigned, 0 if
// signed.
struct SignedForm {
  alignas(16) uint8_t flip[16];
  alignas(16) int32_t offset[4];  // mask of the bits of an offset that count: all or none
  bool known;
};
// Products beyond 0..127 are only guaranteed not to change while a program runs. A single
// instruction gives one of two results; any other result (sums that saturate at 16 bits) is
// neither.
SLUICE_NOINLINE SignedForm signed_form() {
  static constexpr int8_t acts[16] = {127, 127,  127, 127, -127, -127, -127, -127,
                                      127, -127, 127, 1,   -127, 127,  0,    -1};
  static constexpr int8_t weights[16] = {-1,   -1,  -1,   -1,  -1,   -2,   -3, -1,
                                         -128, 127, -127, -64, -128, -128, -1, 100};
  static constexpr int32_t before[4] = {1, -70000, 1 << 20, -5};
  int32_t products[4];
  wasm_v128_store(products, relaxed_dot(opaque(acts), opaque(weights), opaque(before)));
  bool is_signed = true, is_unsigned = true;
  for (int i = 0; i < 4; ++i) {
    int32_t with_signed = before[i], with_unsigned = before[i];
    for (int j = 4 * i; j < 4 * i + 4; ++j) {
      with_signed += acts[j] * weights[j];
      with_unsigned += acts[j] * static_cast<uint8_t>(weights[j]);
    }
    is_signed = is_signed && products[i] == with_signed;
    is_unsigned = is_unsigned && products[i] == with_unsigned;
  }
  SignedForm form = {{}, {}, is_signed || is_unsigned};
  memset(form.flip, is_unsigned ? 0x80 : 0, sizeof form.flip);
  memset(form.offset, is_unsigned ? 0xff : 0, sizeof form.offset);
  return form;
}
const SignedForm kSignedForm = signed_form();

using SignedQuad = Quad;
using SignedCodes = Bytes;
SLUICE_INLINE SignedQuad load_signed_quad(const ActBlock& x, int j) {
  return load_quad(x, j);
}
SLUICE_INLINE SignedQuad load_signed_row(const ActBlock& x, int half) {
  return load_row(x, half);
}
SLUICE_INLINE Bytes load_signed_quad_tile(const ActBlock& x, int part) {
  return load_quad_tile(x, part);
}
SLUICE_INLINE SignedQuad signed_quad_of(Bytes tile, int token) {
  return quad_of(tile, token);
}
SLUICE_INLINE SignedCodes prepare_signed(Bytes a) {
  return {wasm_v128_xor(a.v, opaque(kSignedForm.flip))};
}
// Whether codes above 127 are multiplied exactly.
SLUICE_INLINE bool takes_high() {
  return kSignedForm.flip[0] != 0;
}
SLUICE_INLINE I32 signed_offset(const int32_t& nsum) {
  return {wasm_v128_and(shl<7>(splat_i32(nsum)).v, opaque(kSignedForm.offset))};
}
SLUICE_INLINE I32 dot_signed(I32 sum, const SignedCodes& w, SignedQuad x) {
  return dot(sum, w, x);
}
#endif

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET

#if defined(SLUICE_PAIR_SUMS)
#include "kernels/isa/pair_sum.h"
#else
#include "kernels/isa/whole_sum.h"
#endif

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// Codes of quad j, 0 to 127, times activations, negated where `negative` has all bits of a byte
// set.
template <class S>
SLUICE_INLINE S dot_negated(S sum, Bytes w, Bytes negative, const ActBlock& x, int j) {
  return dot(sum, prepare(w), negate_where(load_quad(x, j), negative));
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET

#include "kernels/isa/four_lanes.h"
