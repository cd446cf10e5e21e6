// The neondot table: neon compiled for CPUs with the dot product instructions.
#define SLUICE_TARGET neondot
// The target must come first:
// clang-format off
#include "kernels/isa/neon.h"
#include "kernels/generic/table.h"
