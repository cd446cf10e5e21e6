;; relaxed.wat in plain SIMD, for engines without relaxed SIMD or without the instruction behind it
;; (the kernels' tests, in Node). Results are the same within the limits stated in relaxed.wat; madd
;; and nmadd round twice. All bytes of dot's weights are signed.
(module
  (func (export "dot") (param $a v128) (param $w v128) (param $acc v128) (result v128)
    (local $lo v128) (local $hi v128)
    (local.set $lo (i32x4.extadd_pairwise_i16x8_s
      (i16x8.extmul_low_i8x16_s (local.get $a) (local.get $w))))
    (local.set $hi (i32x4.extadd_pairwise_i16x8_s
      (i16x8.extmul_high_i8x16_s (local.get $a) (local.get $w))))
    (i32x4.add (local.get $acc)
      (i32x4.add
        (i8x16.shuffle 0 1 2 3 8 9 10 11 16 17 18 19 24 25 26 27 (local.get $lo) (local.get $hi))
        (i8x16.shuffle 4 5 6 7 12 13 14 15 20 21 22 23 28 29 30 31 (local.get $lo) (local.get $hi)))))
  (func (export "dot16") (param $a v128) (param $w v128) (result v128)
    (local $lo v128) (local $hi v128)
    (local.set $lo (i16x8.extmul_low_i8x16_s (local.get $a) (local.get $w)))
    (local.set $hi (i16x8.extmul_high_i8x16_s (local.get $a) (local.get $w)))
    (i16x8.add
      (i8x16.shuffle 0 1 4 5 8 9 12 13 16 17 20 21 24 25 28 29 (local.get $lo) (local.get $hi))
      (i8x16.shuffle 2 3 6 7 10 11 14 15 18 19 22 23 26 27 30 31 (local.get $lo) (local.get $hi))))
  (func (export "madd") (param v128 v128 v128) (result v128)
    (f32x4.add (f32x4.mul (local.get 0) (local.get 1)) (local.get 2)))
  (func (export "nmadd") (param v128 v128 v128) (result v128)
    (f32x4.sub (local.get 2) (f32x4.mul (local.get 0) (local.get 1))))
  (func (export "swizzle") (param v128 v128) (result v128)
    (i8x16.swizzle (local.get 0) (local.get 1))))
