// Random weights in every GGUF type, made as blocks: quantizing real numbers would cost minutes a
// model, and a kernel cannot tell. Scales are chosen so that the dequantized weights have mean 0
// and the asked standard deviation, which keeps activations finite through any number of layers.
// Quants, scales and minimums are all drawn at random, so that a kernel that mixes them up shows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "gguf/gguf.h"

namespace sluice::tools {

// xorshift64* (Vigna, 2016): passes what a weight needs, at about a nanosecond a draw.
class Random {
 public:
  // Streams of different `index` are independent, so that chunks can be made in any order.
  Random(uint64_t seed, uint64_t index);
  uint64_t next();
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

struct BlockType {
  std::string_view name;  // as llama-quantize spells it, lower case
  gguf::TensorType type;
  uint32_t block_size;   // weights
  uint32_t block_bytes;  // bytes
  // Fills out[0, n_blocks * block_bytes) with weights of standard deviation `sigma`, mean `mean`
  // (which only the float types honour; it is 0 for matrices).
  void (*fill)(uint8_t* out, uint64_t n_blocks, float sigma, float mean, Random& random);
};

[[nodiscard]] std::span<const BlockType> block_types();
[[nodiscard]] const BlockType* find_block_type(std::string_view name);  // null when unknown
[[nodiscard]] const BlockType& block_type(gguf::TensorType type);       // must be in the table

}  // namespace sluice::tools
