// The wasm128 table: flags come from kernels/CMakeLists.txt, everything else from the headers.
#define SLUICE_TARGET wasm128
#include "kernels/isa/wasm128.h"

#include "kernels/generic/table.h"
