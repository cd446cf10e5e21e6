// Portable quantizers, and the choice of an instruction set.
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

void Errors::add(const Errors& other) {
  squared += other.squared;
  xx += other.xx;
  yy += other.yy;
  xy += other.xy;
  counted += other.counted;
  power += other.power;
  values += other.values;
  outliers += other.outliers;
  outlier_counted += other.outlier_counted;
  outlier_power += other.outlier_power;
}

double Errors::cosine() const {
  const double lengths = std::sqrt(xx) * std::sqrt(yy);
  return lengths > 0 ? xy / lengths : squared == 0 ? 1 : 0;
}

Quantizers best_quantizers() {
  return quantizers_by_name(kernels::best().name);
}

}  // namespace sluice::convert
