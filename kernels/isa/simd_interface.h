// What the target headers share: no functions (see blocks.h), only the inlining macros and this
// list of names that each target provides. isa/scalar.h defines what each name means.
//
//   sizes     kLanes kRowGroup kTokenTile kTileVecs kWideSupers kTiledActs kTargetName
//   F32       splat load store load_n store_n + - * / mul_add neg_mul_add min max abs sqrt round
//             reduce_add reduce_max < select reduce_add_each
//   I32       splat_i32 store + - shl<n> to_f32 round_i32 as_f32 as_i32
//   loads     load_f16 load_scale load_super store_f16 load_bf16 load_bits<shift, mask>
//             load_s8 | with eight lanes and more: splat_bf16; look_up<shift>: entries of a
//             vector at the indices in bits from `shift` on of kLanes bytes | with fewer than 16:
//             load_entries<shift>: the same from a table of sixteen bytes
//   Bytes     load_bytes store_bytes | bits<shift, mask> lookup16
//   dots      ActBlock load_quad prepare dot load_signed_quad prepare_signed signed_offset
//             dot_signed; in whole_sum.h or pair_sum.h start<Sum<max, quads>> half_word start_half
//             load_factor load_signed_factor (often plain_factor.h) settle finish start_decoded |
//             SLUICE_SIGNED_DOTS if dot takes signed codes | with
//             SLUICE_HIGH_NIBBLES takes_high (are codes above 127 exact here?) and shr<n>
//   file rows transpose_rows (for wide_lanes.h), or load_row load_signed_row (four_lanes.h)
//   I16       load_u8_pairs splat_pair pair_dot
//   acts      put_values (natively plain_values.h); with kTiledActs load_quad_tile quad_of
//             load_signed_quad_tile signed_quad_of
//   memory    prefetch keep_order again<part> anchor kMaxSums (natively native_order.h)
#pragma once

#include <cstdint>

#define SLUICE_INLINE [[maybe_unused]] static inline __attribute__((always_inline))
#define SLUICE_NOINLINE [[maybe_unused]] static __attribute__((noinline))
#define SLUICE_INLINE_METHOD inline __attribute__((always_inline))

// Put before a loop over vectors in registers: an array of vectors stays in registers only if every
// index is a constant.
#if defined(__clang__)
#define SLUICE_UNROLL _Pragma("clang loop unroll(full)")
#define SLUICE_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define SLUICE_UNROLL _Pragma("GCC unroll 16")
#define SLUICE_NO_UNROLL _Pragma("GCC unroll 1")
#endif
