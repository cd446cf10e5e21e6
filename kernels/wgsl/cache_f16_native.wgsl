// The cache as native halves, read-only. Replaces cache.wgsl and cache_f16.wgsl with shader-f16.
@group(0) @binding(3) var<storage, read> cache: array<vec2<f16>>;
fn kept(row: u32, c: u32) -> vec4f {
  return vec4f(vec4<f16>(cache[row + c / 2u], cache[row + c / 2u + 1u]));
}
