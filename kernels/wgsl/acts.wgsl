// Rows of activations in the layout that quantize.wgsl writes.
@group(0) @binding(ACTS_BINDING) var<storage, read> acts: array<u32>;
const ONES = 0x01010101u;

// Where the block with column c of row `row` begins.
fn block_of(row: u32, c: u32) -> u32 {
  return (row * (p.cols / 32u) + c / 32u) * 9u;
}
fn scale_of(block: u32) -> f32 {
  return bitcast<f32>(acts[block]);
}
// Four columns from c on.
fn quad_of(block: u32, c: u32) -> u32 {
  return acts[block + 1u + c % 32u / 4u];
}
