// Sums over a workgroup of WG invocations, SUMS of them at once, by halving the range.
struct Invocation {
  @builtin(local_invocation_index) lane: u32,
}
var<workgroup> partial: array<f32, SUMS * WG>;

fn add_up(at: Invocation, sums: ptr<function, array<f32, SUMS>>) {
  workgroupBarrier();
  for (var k = 0u; k < SUMS; k++) {
    partial[k * WG + at.lane] = (*sums)[k];
  }
  for (var reach = WG / 2u; reach > 0u; reach /= 2u) {
    workgroupBarrier();
    if (at.lane < reach) {
      for (var k = 0u; k < SUMS; k++) {
        partial[k * WG + at.lane] += partial[k * WG + at.lane + reach];
      }
    }
  }
  workgroupBarrier();
}
fn total(k: u32) -> f32 {
  return partial[k * WG];
}
