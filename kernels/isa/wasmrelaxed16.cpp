// The wasmrelaxed16 table: wasmrelaxed with sums in 16-bit pairs, which is faster on x86.
#define SLUICE_TARGET wasmrelaxed16
#define SLUICE_PAIR_SUMS
// The target must come first:
// clang-format off
#include "kernels/isa/wasmrelaxed.h"
#include "kernels/generic/table.h"
#include "kernels/isa/targets.h"

bool sluice::kernels::wasmrelaxed16::runs_here() {
  return true;
}
