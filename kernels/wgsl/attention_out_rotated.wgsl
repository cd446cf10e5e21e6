  // In place of what writes the results: values of a quantized cache are transformed (kv_heads.wgsl),
  // and a sum of them is transformed back. Twice is none. A round is one row of each group.
  for (var i = 0u; i < OWN; i++) {
    for (var j = 0u; j < TIMES; j++) {
      let c = (my_quad + QUADS * j) * 4u;
      for (var k = 0u; k < 4u; k++) {
        if (c + k < DV) {
          outputs[my_group * DV + c + k] = values[i * TIMES + j][k] * factors[my_group + ROW_GROUPS * i];
        }
      }
    }
    for (var step = 1u; step < DV; step *= 2u) {
      workgroupBarrier();
      for (var e = lane; e < ROW_GROUPS * DV; e += WG) {
        let d = e % DV;
        if ((d & step) == 0u && step < size_of(d, DV)) {
          let a = outputs[e];
          let b = outputs[e + step];
          outputs[e] = a + b;
          outputs[e + step] = a - b;
        }
      }
    }
    workgroupBarrier();
    for (var e = lane; e < ROW_GROUPS * DV; e += WG) {
      let row = row0 + e / DV + ROW_GROUPS * i;
      if (row < rows) {
        let head = kv_head * p.group + row % p.group;
        var at = p.out + row / p.group * p.out_ld + head * DV;
        if (SPLIT) {
          at = p.partials + ((id.z * p.tokens + row / p.group) * p.heads + head) * (DV + 2u);
        }
        arena[at + e % DV] = outputs[e] * inverseSqrt(f32(size_of(e % DV, DV)));
      }
    }
    workgroupBarrier();
  }
