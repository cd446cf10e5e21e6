;; The relaxed SIMD instructions that the kernels import from module "relaxed", one function each.
;; clang 14 does not know the final opcodes, so the C++ declares them as imported functions:
;;   __attribute__((const, import_module("relaxed"), import_name("dot")))
;;   v128_t relaxed_dot(v128_t acts_i8, v128_t weights, v128_t acc);
;; The build merges this file into the linked binary, where each call becomes one instruction.
;; relaxed_strict.wat has the same functions in plain SIMD. Add new ones to both files.
(module
  ;; acc[i] + sum over j of acts_i8[4i+j] * weights[4i+j]. Weights in 0..127 are exact everywhere.
  ;; As one instruction it is exact for all bytes, which are signed on some machines and unsigned on
  ;; others (wasmrelaxed.h finds out). Made of 16-bit pairs it saturates.
  (func (export "dot") (param v128 v128 v128) (result v128)
    (i32x4.relaxed_dot_i8x16_i7x16_add_s (local.get 0) (local.get 1) (local.get 2)))
  ;; two products per lane, in 16 bits; weights in 0..127
  (func (export "dot16") (param v128 v128) (result v128)
    (i16x8.relaxed_dot_i8x16_i7x16_s (local.get 0) (local.get 1)))
  ;; a * b + c, rounded once or twice, depending on the machine
  (func (export "madd") (param v128 v128 v128) (result v128)
    (f32x4.relaxed_madd (local.get 0) (local.get 1) (local.get 2)))
  ;; c - a * b
  (func (export "nmadd") (param v128 v128 v128) (result v128)
    (f32x4.relaxed_nmadd (local.get 0) (local.get 1) (local.get 2)))
  ;; table lookup; indices must be in 0..15
  (func (export "swizzle") (param v128 v128) (result v128)
    (i8x16.relaxed_swizzle (local.get 0) (local.get 1))))
