// Plain quantizers, and the choice of an instruction set.
#include "convert/quantize.h"

#define SLUICE_QUANTIZERS plain_quantizers
#include "convert/quantizers.h"

namespace sluice::convert {

#ifdef SLUICE_QUANTIZERS_X86
Quantizers avx2_quantizers();
Quantizers avx512_quantizers();
#endif

Quantizers quantizers_by_name([[maybe_unused]] std::string_view name) {
#ifdef SLUICE_QUANTIZERS_X86
  if (name == "avx512vnni") return avx512_quantizers();
  if (name == "avx2") return avx2_quantizers();
#endif
  return plain_quantizers();
}

Quantizers best_quantizers() {
  return quantizers_by_name(kernels::best().name);
}

}  // namespace sluice::convert
