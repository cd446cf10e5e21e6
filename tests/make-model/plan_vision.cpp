// Vision projectors beside the text models of shapes.cpp, from the published model cards: Qwen 3 VL
// (deepstack, positions of a table that is resized) and Idefics 3 with a SigLIP encoder (SmolVLM).
#include <cmath>

#include "tests/make-model/planner.h"

namespace sluice::make_model {
namespace {

using gguf::TensorType;

constexpr float kBiasSigma = 0.02f, kPositionSigma = 0.1f;

// A matrix with its bias.
void linear(Planner* plan, const std::string& name, uint64_t in, uint64_t out) {
  plan->matrix(name + ".weight", {in, out});
  plan->values(name + ".bias", {out}, kBiasSigma, 0);
}

void layer_norm(Planner* plan, const std::string& name, uint64_t n) {
  plan->norm(name + ".weight", n);
  plan->values(name + ".bias", {n}, kBiasSigma, 0);
}

void plan_block(Planner* plan, const VisionShape& v, const std::string& prefix) {
  const uint64_t n = v.n_embd;
  layer_norm(plan, prefix + "ln1", n);
  if (v.merge_norms) {
    linear(plan, prefix + "attn_qkv", n, 3 * n);
  } else {
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) linear(plan, prefix + part, n, n);
  }
  linear(plan, prefix + "attn_out", n, n);
  layer_norm(plan, prefix + "ln2", n);
  linear(plan, prefix + "ffn_up", n, v.n_ff);
  linear(plan, prefix + "ffn_down", v.n_ff, n);
}

}  // namespace

std::vector<PlannedTensor> plan_projector(const Shape& shape, const FileType& type) {
  const VisionShape& v = *shape.vision;
  Planner plan(type, true);
  const uint64_t n = v.n_embd, side = v.image_size / v.patch_size;
  const uint64_t wide = n * v.merge * v.merge;
  // Its rows are those of the kernel: the gain makes up for the other inputs.
  const float gain = 1 / std::sqrt(static_cast<float>(3 * v.patch_size));
  for (const char* name : {"v.patch_embd.weight", "v.patch_embd.weight.1"}) {
    plan.matrix(name, {v.patch_size, v.patch_size, 3, n}, TensorType::kF16, gain);
    if (!v.merge_norms) break;
  }
  plan.values("v.patch_embd.bias", {n}, kBiasSigma, 0);
  plan.values("v.position_embd.weight", {n, side * side}, kPositionSigma, 0);
  for (uint32_t layer = 0; layer < v.n_layer; ++layer) {
    plan_block(&plan, v, "v.blk." + std::to_string(layer) + ".");
  }
  layer_norm(&plan, "v.post_ln", n);
  if (!v.merge_norms) {
    plan.matrix("mm.model.fc.weight", {wide, shape.n_embd});
    return std::move(plan.tensors);
  }
  linear(&plan, "mm.0", wide, wide);
  linear(&plan, "mm.2", wide, shape.n_embd);
  for (const uint32_t layer : v.deepstack) {
    const std::string prefix = "v.deepstack." + std::to_string(layer) + ".";
    layer_norm(&plan, prefix + "norm", wide);
    linear(&plan, prefix + "fc1", wide, wide);
    linear(&plan, prefix + "fc2", wide, shape.n_embd);
  }
  return std::move(plan.tensors);
}

void add_projector_keys(GgufWriter* writer, const Shape& shape, const FileType& type) {
  const VisionShape& v = *shape.vision;
  const auto key = [](const char* name) { return std::string("clip.vision.") + name; };
  constexpr float kHalf[] = {0.5f, 0.5f, 0.5f};
  writer->add("general.architecture", "clip");
  writer->add("general.type", "mmproj");
  writer->add("general.name", "random " + shape.name);
  writer->add("general.file_type", type.ftype);
  writer->add("general.quantization_version", 2u);
  writer->add("clip.has_vision_encoder", true);
  writer->add("clip.projector_type", v.type);
  writer->add("clip.use_gelu", true);
  writer->add(key("projection_dim"), shape.n_embd);
  writer->add(key("image_size"), v.image_size);
  writer->add(key("patch_size"), v.patch_size);
  writer->add(key("embedding_length"), v.n_embd);
  writer->add(key("feed_forward_length"), v.n_ff);
  writer->add(key("block_count"), v.n_layer);
  writer->add(key("attention.head_count"), v.n_head);
  writer->add(key("attention.layer_norm_epsilon"), 1e-6f);
  writer->add(key("image_mean"), std::span<const float>(kHalf));
  writer->add(key("image_std"), std::span<const float>(kHalf));
  if (v.merge_norms) {
    writer->add(key("spatial_merge_size"), v.merge);
  } else {
    writer->add(key("projector.scale_factor"), v.merge);
    writer->add(key("preproc_image_size"), v.longest_side);
  }
}

// M-RoPE of the text model, whose first layers take the deepstack parts.
void add_qwen3vl_keys(GgufWriter* writer, const Shape& shape) {
  constexpr int32_t kSections[] = {24, 20, 20, 0};
  writer->add(shape.arch + ".rope.dimension_sections", std::span<const int32_t>(kSections));
  writer->add(shape.arch + ".n_deepstack_layers",
              static_cast<uint32_t>(shape.vision->deepstack.size()));
}

}  // namespace sluice::make_model
