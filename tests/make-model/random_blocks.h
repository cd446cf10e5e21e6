// Random weights in every GGUF type, generated as blocks: quantizing real numbers would take
// minutes per model, and kernels cannot tell the difference. Scales give the dequantized weights
// mean 0 and the requested standard deviation, which keeps activations finite through any number of
// layers. Quants, scales and minimums are all random, so that a kernel that mixes them up fails.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "gguf/gguf.h"

namespace sluice::make_model {

// xorshift64* (Vigna, 2016): good enough for weights, at about a nanosecond per draw.
class Random {
 public:
  // Streams of different `index` are independent, so chunks can be generated in any order.
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
  // Fills out[0, n_blocks * block_bytes) with weights of standard deviation `sigma` and mean
  // `mean`. Only float types use `mean`; it is 0 for matrices.
  void (*fill)(uint8_t* out, uint64_t n_blocks, float sigma, float mean, Random& random);
};

[[nodiscard]] std::span<const BlockType> block_types();
[[nodiscard]] const BlockType* find_block_type(std::string_view name);  // null if unknown
[[nodiscard]] const BlockType& block_type(gguf::TensorType type);       // must be in the table

}  // namespace sluice::make_model
