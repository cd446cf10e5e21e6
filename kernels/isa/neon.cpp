// The neon table: flags come from kernels/CMakeLists.txt, everything else from the headers.
#define SLUICE_TARGET neon
#include "kernels/isa/neon.h"

#include "kernels/generic/table.h"
