// The relaxed SIMD instructions as functions; the build merges them in and inlines them
// (relaxed.wat).
#pragma once

#include <wasm_simd128.h>

// Same types as in relaxed.wat; plain C names because they are imports.
extern "C" {
__attribute__((const, import_module("relaxed"), import_name("dot"))) v128_t relaxed_dot(
    v128_t acts_i8, v128_t weights, v128_t acc);
__attribute__((const, import_module("relaxed"), import_name("dot16"))) v128_t relaxed_dot16(
    v128_t acts_i8, v128_t weights_u7);
__attribute__((const, import_module("relaxed"), import_name("madd"))) v128_t relaxed_madd(v128_t a,
                                                                                          v128_t b,
                                                                                          v128_t c);
__attribute__((const, import_module("relaxed"), import_name("nmadd"))) v128_t relaxed_nmadd(
    v128_t a, v128_t b, v128_t c);
__attribute__((const, import_module("relaxed"), import_name("swizzle"))) v128_t relaxed_swizzle(
    v128_t table, v128_t indices);
}
