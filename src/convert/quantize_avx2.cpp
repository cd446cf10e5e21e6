// The quantizers compiled for AVX2; empty on other processors.
#ifdef __AVX2__
#define SLUICE_QUANTIZERS avx2_quantizers
#include "convert/quantizers.h"
#endif
