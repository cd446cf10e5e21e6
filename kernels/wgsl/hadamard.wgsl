// Hadamard transform of heads in place, as the CPU applies it where the KV cache is quantized: of
// the greatest power of two values in N, then of the rest in the same way. It is its own inverse.
// One workgroup per head of N values.
struct Params {
  x: u32, x_ld: u32,
}
var<workgroup> values: array<f32, N>;

// Size of the part with value i. A part begins at a multiple of twice its size, so the bits of i
// below that are its place in the part.
fn size_of(i: u32) -> u32 {
  return 1u << firstLeadingBit(i ^ N);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) lane: u32) {
  let head = p.x + id.y * p.x_ld + id.x * N;
  for (var i = lane; i < N; i += 64u) {
    values[i] = arena[head + i];
  }
  for (var step = 1u; step < N; step *= 2u) {
    workgroupBarrier();
    for (var i = lane; i < N; i += 64u) {
      if ((i & step) == 0u && step < size_of(i)) {
        let a = values[i];
        let b = values[i + step];
        values[i] = a + b;
        values[i + step] = a - b;
      }
    }
  }
  workgroupBarrier();
  for (var i = lane; i < N; i += 64u) {
    arena[head + i] = values[i] * inverseSqrt(f32(size_of(i)));
  }
}
