// The avx2 table: flags come from kernels/CMakeLists.txt, everything else from the headers.
#define SLUICE_TARGET avx2
#include "kernels/isa/avx2.h"

#include "kernels/generic/table.h"
