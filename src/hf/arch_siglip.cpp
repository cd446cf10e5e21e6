// Vision projectors with a SigLIP encoder: Gemma 3, and Idefics 3 with SmolVLM. Also the text model
// of the latter, which is a Llama.
#include <algorithm>
#include <array>
#include <cmath>

#include "hf/architecture.h"
#include "hf/projector.h"

namespace sluice::hf {
namespace {

constexpr Name kSiglipLayer[] = {{"layer_norm1", "ln1"},         {"layer_norm2", "ln2"},
                                 {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"},
                                 {"self_attn.v_proj", "attn_v"}, {"self_attn.out_proj", "attn_out"},
                                 {"mlp.fc1", "ffn_up"},          {"mlp.fc2", "ffn_down"}};
constexpr Name kSiglipWhole[] = {{"embeddings.patch_embedding", "v.patch_embd"},
                                 {"embeddings.position_embedding", "v.position_embd"},
                                 {"post_layernorm", "v.post_ln"}};

constexpr Name kGemma3Projector[] = {
    {"mm_input_projection_weight", "mm.input_projection.weight"},
    {"mm_soft_emb_norm", "mm.soft_emb_norm", TensorTransform::kPlusOne}};
constexpr auto kGemma3Whole = joined(kSiglipWhole, kGemma3Projector);
constexpr std::string_view kGemma3Prefixes[] = {
    "model.vision_tower.vision_model.", "vision_tower.vision_model.",
    "model.multi_modal_projector.", "multi_modal_projector."};
// The pooling head of whole SigLIP checkpoints.
constexpr std::string_view kGemma3Skipped[] = {"model.vision_tower.vision_model.head.",
                                               "vision_tower.vision_model.head."};

constexpr Name kIdeficsProjector[] = {{"modality_projection.proj", "mm.model.fc"}};
constexpr auto kIdeficsWhole = joined(kSiglipWhole, kIdeficsProjector);
constexpr std::string_view kIdeficsPrefixes[] = {"model.vision_model.", "model.connector."};

constexpr std::string_view kIdeficsText[] = {"model.text_model.", "model."};
constexpr Name kIdeficsTextOwn[] = {{"post_attention_layernorm", "ffn_norm"},
                                    {"self_attn.rotary_emb.inv_freq", "-", TensorTransform::kSkip}};
constexpr auto kIdeficsTextLayer = joined(kAttentionNames, kDenseNames, kIdeficsTextOwn);

void read_siglip(ConfigReader& r) {
  expect_activation(r, "hidden_act", "gelu_pytorch_tanh");
  r.out().boolean("clip.use_gelu", true);
}

constexpr Field kSiglipFields[] = {
    read_by(read_siglip),
    read_by(read_projection_dim),
    read_by(read_half_colours),
    real_of("attention.layer_norm_epsilon", "layer_norm_eps", 1e-6),
};

// Patches a side that become one token, where they are not 4.
void read_pooling_of_gemma3(ConfigReader& r) {
  const Json* whole = json_find(r.config(), kWhole);
  const int64_t tokens = json_int(*whole, "mm_tokens_per_image").value_or(256);
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(tokens)) + 0.5);
  const int64_t patches = r.size("image_size", 896) / r.size("patch_size", 14);
  if (tokens < 1 || side * side != tokens || patches % side != 0) {
    return r.impossible("mm_tokens_per_image");
  }
  if (patches / side != 4) r.put("projector.scale_factor", patches / side);
}

void read_idefics(ConfigReader& r) {
  const Json* whole = json_find(r.config(), kWhole);
  const int64_t scale = json_int(*whole, "scale_factor").value_or(2);
  if (scale < 1 || scale > 64) return r.impossible("scale_factor");
  r.put("projector.scale_factor", scale);
  const Json* preprocessor = json_find(r.config(), kPreprocessor);
  const Json* size = preprocessor == nullptr ? nullptr : json_find(*preprocessor, "size");
  if (size == nullptr) size = json_find(r.config(), "size");
  const int64_t longest =
      size == nullptr ? r.size("image_size", 224) : json_int(*size, "longest_edge").value_or(0);
  if (longest < 1 || longest > 1 << 20) return r.impossible("the longest_edge of size");
  r.put("preproc_image_size", longest);
}

// Where config.json lacks a size: the defaults of transformers' SiglipVisionConfig and
// Idefics3VisionConfig.
struct SiglipSizes {
  int64_t image, patch, feed_forward, layers;
};
constexpr SiglipSizes kSiglipSizes = {896, 14, 4304, 27};
constexpr SiglipSizes kIdeficsSizes = {224, 32, 3072, 12};

constexpr std::array<Field, 8> siglip_fields(const SiglipSizes& defaults,
                                             void (*read_projector)(ConfigReader& r)) {
  return {all_of(kSiglipFields),
          size_of("image_size", "image_size", defaults.image),
          size_of("patch_size", "patch_size", defaults.patch),
          size_of("embedding_length", "hidden_size", 1152),
          size_of("feed_forward_length", "intermediate_size", defaults.feed_forward),
          size_of("block_count", "num_hidden_layers", defaults.layers),
          size_of("attention.head_count", "num_attention_heads", 16),
          read_by(read_projector)};
}
constexpr auto kGemma3Vision = siglip_fields(kSiglipSizes, read_pooling_of_gemma3);
constexpr auto kIdeficsVision = siglip_fields(kIdeficsSizes, read_idefics);

}  // namespace

const TensorMap kGemma3VisionTensors =
    vision_tensors(kGemma3Skipped, kGemma3Prefixes, "encoder.layers.", kGemma3Whole, kSiglipLayer);
const TensorMap kIdeficsVisionTensors =
    vision_tensors({}, kIdeficsPrefixes, "encoder.layers.", kIdeficsWhole, kSiglipLayer);
const TensorMap kIdeficsTensors = {.skipped = kIdeficsPrefixes,
                                   .prefixes = kIdeficsText,
                                   .whole = kDecoderWhole,
                                   .of_layer = kIdeficsTextLayer,
                                   .in_file_order = true};
const std::span<const Field> kGemma3VisionFields = kGemma3Vision,
                             kIdeficsVisionFields = kIdeficsVision;

}  // namespace sluice::hf
