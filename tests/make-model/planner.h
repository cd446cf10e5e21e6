// Collects the tensors of a synthetic model, and declares the parts of shapes that are too special
// for model_plan.cpp: their layers, global tensors and metadata.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/make-model/model_plan.h"
#include "tests/make-model/random_blocks.h"

namespace sluice::make_model {

// A matrix with standard deviation 1/sqrt(cols) preserves the size of its input. Queries and keys
// are larger so that attention is selective, and logits are larger so that some token leads.
inline constexpr float kAttentionGain = 1.5f, kLogitGain = 2.0f;

// The replacement for a type whose blocks do not fit the rows.
[[nodiscard]] gguf::TensorType fitting(gguf::TensorType type, uint64_t cols);
// Whether a layer's precious() matrices get more bits in _M mixes.
[[nodiscard]] bool takes_more_bits(uint32_t layer, uint32_t n_layer);

// The tensors of a file, in the order added.
class Planner {
 public:
  // `mixture`: in MXFP4 only the experts, as in the mix MXFP4_MOE; the other matrices get the
  // head's type.
  Planner(const FileType& type, bool pure, bool mixture = false)
      : type_(type),
        pure_(pure),
        only_experts_(mixture && !pure && type.type == gguf::TensorType::kMXFP4) {}

  void matrix(std::string name, std::vector<uint64_t> ne, gguf::TensorType type,
              float gain = 1.0f) {
    const float sigma = gain / std::sqrt(static_cast<float>(ne[0]));
    if (only_experts_ && type == type_.type && ne.size() == 2) type = type_.heads;
    const gguf::TensorType fits = fitting(type, ne[0]);
    add(std::move(name), fits, std::move(ne), sigma, 0.0f);
  }
  void matrix(std::string name, std::vector<uint64_t> ne) {
    matrix(std::move(name), std::move(ne), type_.type);
  }
  // Adds a small tensor that stays F32.
  void values(std::string name, std::vector<uint64_t> ne, float sigma, float mean) {
    add(std::move(name), gguf::TensorType::kF32, std::move(ne), sigma, mean);
  }
  void norm(std::string name, uint64_t n, float mean = 1.0f) {
    add(std::move(name), gguf::TensorType::kF32, {n}, 0.1f * mean, mean);
  }
  [[nodiscard]] gguf::TensorType type() const { return type_.type; }
  [[nodiscard]] gguf::TensorType head_type() const { return pure_ ? type_.type : type_.heads; }
  [[nodiscard]] gguf::TensorType precious(uint32_t layer, uint32_t n_layer) const {
    const bool more = type_.more_bits && takes_more_bits(layer, n_layer);
    return more ? gguf::TensorType::kQ6_K : type_.type;
  }

  std::vector<PlannedTensor> tensors;

 private:
  void add(std::string name, gguf::TensorType type, std::vector<uint64_t> ne, float sigma,
           float mean) {
    PlannedTensor tensor{std::move(name), type, std::move(ne), sigma, mean};
    tensor.n_weights = 1;
    for (const uint64_t n : tensor.ne) tensor.n_weights *= n;
    const BlockType& block = block_type(type);
    tensor.bytes = tensor.n_weights / block.block_size * block.block_bytes;
    tensors.push_back(std::move(tensor));
  }

  FileType type_;
  bool pure_, only_experts_;
};

// plan_mixtures.cpp: gpt-oss, LFM2-MoE and DeepSeek-V2
void plan_gpt_oss(Planner* plan, const Shape& shape, uint32_t layer);
void add_gpt_oss_keys(GgufWriter* writer, const Shape& shape);
void plan_lfm2moe(Planner* plan, const Shape& shape, uint32_t layer);
void add_lfm2moe_keys(GgufWriter* writer, const Shape& shape);
void plan_deepseek2(Planner* plan, const Shape& shape, uint32_t layer);
void add_deepseek2_keys(GgufWriter* writer, const Shape& shape);
// plan_vision.cpp
void add_qwen3vl_keys(GgufWriter* writer, const Shape& shape);
// plan_gemma.cpp
void plan_gemma3n(Planner* plan, const Shape& shape, uint32_t layer);
void plan_gemma3n_globals(Planner* plan, const Shape& shape);
void add_gemma3n_keys(GgufWriter* writer, const Shape& shape);
void plan_gemma4(Planner* plan, const Shape& shape, uint32_t layer);
void plan_gemma4_globals(Planner* plan, const Shape& shape);
void add_gemma4_keys(GgufWriter* writer, const Shape& shape);

}  // namespace sluice::make_model
