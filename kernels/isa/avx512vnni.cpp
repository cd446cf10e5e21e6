// The avx512vnni table: flags come from kernels/CMakeLists.txt, everything else from the headers.
#define SLUICE_TARGET avx512vnni
#include "kernels/isa/avx512vnni.h"

#include "kernels/generic/decoded_types.h"
#include "kernels/isa/vbmi_decoders.h"

namespace sluice::kernels::avx512vnni {
namespace {

template <class K>
constexpr avx512vbmi::Decoder kFaster = nullptr;
template <>
constexpr avx512vbmi::Decoder kFaster<IQ1_S> = avx512vbmi::decode_iq1_s;
template <>
constexpr avx512vbmi::Decoder kFaster<IQ1_M> = avx512vbmi::decode_iq1_m;
template <>
constexpr avx512vbmi::Decoder kFaster<IQ2_XXS> = avx512vbmi::decode_iq2_xxs;
template <>
constexpr avx512vbmi::Decoder kFaster<IQ2_XS> = avx512vbmi::decode_iq2_xs;
template <>
constexpr avx512vbmi::Decoder kFaster<IQ2_S> = avx512vbmi::decode_iq2_s;
template <>
constexpr avx512vbmi::Decoder kFaster<IQ3_XXS> = avx512vbmi::decode_iq3_xxs;
template <>
constexpr avx512vbmi::Decoder kFaster<IQ3_S> = avx512vbmi::decode_iq3_s;

#define SLUICE_FASTER_DECODERS 1
template <class K>
SLUICE_INLINE avx512vbmi::Decoder faster_decoder() {
  return kFaster<K> != nullptr && avx512vbmi::enabled() ? kFaster<K> : nullptr;
}

}  // namespace
}  // namespace sluice::kernels::avx512vnni

#include "kernels/generic/table.h"
