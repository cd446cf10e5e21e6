// The avx512vnni table: flags come from kernels/CMakeLists.txt, everything else from the headers.
#define SLUICE_TARGET avx512vnni
#include "kernels/isa/avx512vnni.h"

#include "kernels/generic/table.h"
