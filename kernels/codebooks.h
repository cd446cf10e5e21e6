// The codebooks of IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S: what an index of a
// block stands for. An entry is eight or four bytes, value 0 in the lowest. All kernels and the
// reference share this one copy, 33 kB, made from sets of a few hundred bytes when a model first
// needs it.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// The values that entries consist of.
inline constexpr uint8_t kIq2Values[3] = {8, 25, 43};
inline constexpr uint8_t kIq1Values[3] = {0xf8, 0, 8};  // eight times -1, 0 and 1, as int8
inline constexpr uint8_t kIq3XxsValues[8] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr uint8_t kIq3SValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};

struct Codebooks {
  uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024];
  uint64_t iq1[2048];
  uint32_t iq3_xxs[256];
  uint32_t iq3_s[512];
};
[[nodiscard]] const Codebooks& codebooks();

// Seven sign bits in each byte, with the eighth set where the number of the others is odd. For
// words of 32 bits and vectors of them.
template <class Words>
[[nodiscard]] __attribute__((always_inline)) inline Words with_even_parity(Words sevens) {
  Words x = sevens ^ sevens >> 4;  // the lowest bits count, whatever comes from the next byte
  x ^= x >> 2;
  x ^= x >> 1;
  return sevens | (x & 0x01010101u) << 7;
}

}  // namespace sluice::kernels
