// The wasmrelaxed table: flags come from kernels/CMakeLists.txt, everything else from the headers.
#define SLUICE_TARGET wasmrelaxed
#define SLUICE_HIGH_NIBBLES
#include "kernels/isa/wasmrelaxed.h"

#include "kernels/generic/table.h"
#include "kernels/isa/targets.h"

bool sluice::kernels::wasmrelaxed::runs_here() {
  return kSignedForm.known;
}
