// The quantizers compiled for AVX-512; empty on other processors.
#ifdef __AVX512F__
#define SLUICE_QUANTIZERS avx512_quantizers
#include "convert/quantizers.h"
#endif
