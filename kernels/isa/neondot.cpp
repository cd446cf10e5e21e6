// The neondot table: neon compiled for CPUs with the dot product instructions.
#define SLUICE_TARGET neondot
// clang-format off: the target comes first
#include "kernels/isa/neon.h"
#include "kernels/generic/table.h"
