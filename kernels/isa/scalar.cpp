// The scalar table: flags come from kernels/CMakeLists.txt, everything else from the headers.
#define SLUICE_TARGET scalar
#include "kernels/isa/scalar.h"

#include "kernels/generic/table.h"
