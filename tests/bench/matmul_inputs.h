// What the benchmarks of matrix multiplication have in common: all types, and their inputs.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace sluice::kernels {

struct Weight {
  Type type;
  const char* name;
};
inline constexpr Weight kWeights[] = {
#define SLUICE_ELEMENT_TYPE(NAME, name, id, bytes) {Type::k##NAME, #NAME},
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) {Type::k##NAME, #NAME},
#include "kernels/types.def"
};

// Random bits in which no scale is a NaN or an infinity.
inline std::vector<uint8_t> random_file(size_t bytes) {
  std::mt19937 rng(1);
  std::vector<uint8_t> file(bytes);
  for (uint8_t& b : file) b = static_cast<uint8_t>((rng() & 0x2b) | 0x10);
  return file;
}

inline std::vector<float> random_activations(size_t n) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

}  // namespace sluice::kernels
