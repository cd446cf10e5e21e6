// The bindings of every kernel; each defines its own Params.
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> arena: array<f32>;
@group(0) @binding(2) var<storage, read> vectors: array<f32>;

fn quad(at: u32) -> vec4f {
  return vec4f(arena[at], arena[at + 1u], arena[at + 2u], arena[at + 3u]);
}
fn vector_quad(at: u32) -> vec4f {
  return vec4f(vectors[at], vectors[at + 1u], vectors[at + 2u], vectors[at + 3u]);
}
// The values of a quad that begins at column c of n; values past n are 0, whatever was read.
fn within(values: vec4f, c: u32, n: u32) -> vec4f {
  return select(vec4f(0.0), values, vec4u(c) + vec4u(0u, 1u, 2u, 3u) < vec4u(n));
}
