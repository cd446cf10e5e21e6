// A matrix of F32, F16 or BF16 values, which streams.wgsl reads one by one.
@group(0) @binding(3) var<storage, read> coefficients: array<u32>;
fn word(i: u32) -> u32 {
  return coefficients[p.base + i];
}
fn coefficient(i: u32) -> f32 {
  return COEFFICIENT;
}
