// SIMD operations for AVX-512 with VBMI: those of avx512vnni.h. Only decoders use more.
#pragma once

#include "kernels/isa/avx512vnni.h"
