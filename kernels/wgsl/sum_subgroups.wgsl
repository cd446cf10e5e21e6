// Sums over a workgroup of WG invocations, SUMS of them at once, by subgroups. Requires invocation
// i to be in subgroup i / size, which is tested at run time before use. A subgroup has at least four
// invocations. Workgroup memory is kept small: every workgroup clears it first.
const SUBGROUPS = WG / 4u;
struct Invocation {
  @builtin(local_invocation_index) lane: u32,
  @builtin(subgroup_invocation_id) place: u32,
  @builtin(subgroup_size) size: u32,
}
var<workgroup> partial: array<f32, SUMS * SUBGROUPS>;
var<private> subgroup_count: u32;

fn add_up(at: Invocation, sums: ptr<function, array<f32, SUMS>>) {
  workgroupBarrier();
  subgroup_count = max(WG / at.size, 1u);
  for (var k = 0u; k < SUMS; k++) {
    let sum = subgroupAdd((*sums)[k]);
    if (at.place == 0u) {
      partial[k * SUBGROUPS + at.lane / at.size] = sum;
    }
  }
  workgroupBarrier();
}
fn total(k: u32) -> f32 {
  var sum = 0.0;
  for (var i = 0u; i < subgroup_count; i++) {
    sum += partial[k * SUBGROUPS + i];
  }
  return sum;
}
