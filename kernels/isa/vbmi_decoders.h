// Decoders of codebook types for processors with AVX-512 VBMI, which shuffles bytes of 128-byte
// tables. They write what the decoders of generic/decoded_types.h write, bit by bit, for row groups
// of sixteen. The avx512vnni table calls them where the processor has these instructions.
#pragma once

#include <cstdint>

namespace sluice::kernels::avx512vbmi {

// Whether the avx512vnni table calls them, at first whether the processor has the instructions.
// Tests turn it off to compare both kinds.
[[nodiscard]] bool& enabled();

// A packed block of a row group to int8 codes and f32 scales (generic/decoded_block.h, Decoded).
using Decoder = void (*)(const uint8_t* block, uint8_t* codes, float* scales);

void decode_iq1_s(const uint8_t* block, uint8_t* codes, float* scales);
void decode_iq1_m(const uint8_t* block, uint8_t* codes, float* scales);
void decode_iq2_xxs(const uint8_t* block, uint8_t* codes, float* scales);
void decode_iq2_xs(const uint8_t* block, uint8_t* codes, float* scales);
void decode_iq2_s(const uint8_t* block, uint8_t* codes, float* scales);
void decode_iq3_xxs(const uint8_t* block, uint8_t* codes, float* scales);
void decode_iq3_s(const uint8_t* block, uint8_t* codes, float* scales);

}  // namespace sluice::kernels::avx512vbmi
