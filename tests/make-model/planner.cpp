// Chooses the type of a matrix.
#include "tests/make-model/planner.h"

namespace sluice::make_model {

using gguf::TensorType;

// If rows are not a multiple of a type's block, use the nearest type with blocks of 32, or F16.
TensorType fitting(TensorType type, uint64_t cols) {
  if (cols % block_type(type).block_size == 0) return type;
  switch (type) {
    case TensorType::kQ2_K:
    case TensorType::kQ3_K:
    case TensorType::kIQ4_XS:
      type = TensorType::kIQ4_NL;
      break;
    case TensorType::kQ4_K:
      type = TensorType::kQ5_0;
      break;
    case TensorType::kQ5_K:
      type = TensorType::kQ5_1;
      break;
    case TensorType::kQ6_K:
      type = TensorType::kQ8_0;
      break;
    default:
      type = TensorType::kQ4_0;
  }
  return cols % 32 == 0 ? type : TensorType::kF16;
}

bool takes_more_bits(uint32_t layer, uint32_t n_layer) {
  const uint32_t eighth = n_layer / 8;
  return layer < eighth || layer >= 7 * n_layer / 8 || (layer - eighth) % 3 == 2;
}

}  // namespace sluice::make_model
