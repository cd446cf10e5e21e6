// Qwen 2.5 VL and Qwen 3 VL: the text models, which have M-RoPE, and the vision projectors. Patches
// of both come from a convolution over two frames, which a picture fills twice.
#include <algorithm>
#include <cmath>

#include "hf/architecture.h"
#include "hf/projector.h"

namespace sluice::hf {
namespace {

// --- text

constexpr std::string_view kQwenVlSkipped[] = {"model.visual.", "visual."};
constexpr std::string_view kQwenVlPrefixes[] = {"model.language_model.", "model."};
constexpr Name kQwenVlOwn[] = {{"post_attention_layernorm", "ffn_norm"}};
constexpr auto kQwenVlLayer = joined(kAttentionNames, kDenseNames, kQwenVlOwn);

void check_qwen_vl(ConfigReader& r) {
  expect_activation(r, "hidden_act", "silu");
  check_dense(r);
}

// The values of a head that turn by time, row and column.
void read_mrope(ConfigReader& r, double base) {
  const Json& rope = rope_parameters(r.config());
  expect_rope(r, rope, "mrope");
  r.put("rope.freq_base", rope_base(r, rope, base));
  std::vector<int32_t> sections;
  int64_t sum = 0;
  for (const int64_t n : integers(r, rope, "mrope_section", 4096)) {
    sections.push_back(static_cast<int32_t>(n));
    sum += n;
  }
  if (sections.size() != 3 || sum * 2 != head_dim(r)) return r.impossible("mrope_section");
  sections.push_back(0);
  r.put_list("rope.dimension_sections", sections);
}

void read_qwen25_rope(ConfigReader& r) {
  read_mrope(r, 1e6);
}
// Its sections are interleaved, in all files of the architecture.
void read_qwen3_rope(ConfigReader& r) {
  if (json_bool(rope_parameters(r.config()), "mrope_interleaved") == false) {
    r.unsupported("mrope_interleaved = false");
  }
  read_mrope(r, 5e6);
}

void read_deepstack_count(ConfigReader& r) {
  const Json* vision = json_find(r.config(), "vision_config");
  if (vision == nullptr) return r.impossible("vision_config");
  const auto blocks = integers(r, *vision, "deepstack_visual_indexes", kMaxConfigLayers);
  r.put("n_deepstack_layers", static_cast<int64_t>(blocks.size()));
}

constexpr Field kQwenVl[] = {
    read_by(check_qwen_vl),
    all_of(kDenseFields),
    computed("attention.key_length", head_dim),
    computed("attention.value_length", head_dim),
    real_of("attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6),
    computed("rope.dimension_count", head_dim),
};
constexpr Field kQwen25Vl[] = {all_of(kQwenVl), read_by(read_qwen25_rope)};
constexpr Field kQwen3Vl[] = {all_of(kQwenVl), read_by(read_qwen3_rope),
                              read_by(read_deepstack_count)};

// --- vision

constexpr std::string_view kVisualPrefixes[] = {"model.visual.", "visual."};
constexpr Name kVisualNorms[] = {{"norm1", "ln1"}, {"norm2", "ln2"}, {"attn.proj", "attn_out"}};

constexpr Name kQwen25VisionWhole[] = {
    {"patch_embed.proj.weight", "v.patch_embd.weight|v.patch_embd.weight.1",
     TensorTransform::kFrames},
    {"merger.ln_q", "v.post_ln"},
    {"merger.mlp.0", "mm.0"},
    {"merger.mlp.2", "mm.2"}};
constexpr Name kQwen25VisionOwn[] = {{"attn.qkv", "attn_q|attn_k|attn_v", TensorTransform::kThirds},
                                     {"mlp.gate_proj", "ffn_gate"},
                                     {"mlp.up_proj", "ffn_up"},
                                     {"mlp.down_proj", "ffn_down"}};
constexpr auto kQwen25VisionLayer = joined(kVisualNorms, kQwen25VisionOwn);

constexpr Name kQwen3VisionWhole[] = {
    {"patch_embed.proj.weight", "v.patch_embd.weight|v.patch_embd.weight.1",
     TensorTransform::kFrames},
    {"patch_embed.proj", "v.patch_embd"},
    {"pos_embed", "v.position_embd"},
    {"merger.norm", "v.post_ln"},
    {"merger.linear_fc1", "mm.0"},
    {"merger.linear_fc2", "mm.2"},
    {"deepstack_merger_list.#.norm", "v.deepstack.#.norm", TensorTransform::kDeepstack},
    {"deepstack_merger_list.#.linear_fc1", "v.deepstack.#.fc1", TensorTransform::kDeepstack},
    {"deepstack_merger_list.#.linear_fc2", "v.deepstack.#.fc2", TensorTransform::kDeepstack}};
constexpr Name kQwen3VisionOwn[] = {
    {"attn.qkv", "attn_qkv"}, {"mlp.linear_fc1", "ffn_up"}, {"mlp.linear_fc2", "ffn_down"}};
constexpr auto kQwen3VisionLayer = joined(kVisualNorms, kQwen3VisionOwn);

void check_frames(ConfigReader& r) {
  if (r.size("temporal_patch_size", 2) != 2) r.unsupported("temporal_patch_size");
  if (r.size("spatial_merge_size", 2) != 2) r.unsupported("spatial_merge_size");
  r.put("spatial_merge_size", int64_t{2});
}

constexpr Field kVisualFields[] = {
    read_by(check_frames),
    read_by(read_projection_dim),
    size_of("patch_size", "patch_size"),
    size_of("embedding_length", "hidden_size"),
    size_of("feed_forward_length", "intermediate_size"),
    size_of("block_count", "depth"),
    size_of("attention.head_count", "num_heads"),
    real_of("attention.layer_norm_epsilon", "rms_norm_eps", 1e-6),
};

// Every n-th block attends to all patches, the others inside windows of 112 pixels.
void read_windows(ConfigReader& r) {
  constexpr int64_t kWindow = 112;
  expect_activation(r, "hidden_act", "silu");
  if (r.size("window_size", kWindow) != kWindow) r.unsupported("window_size");
  const char* const kKey = "fullatt_block_indexes";
  const std::vector<int64_t> blocks = integers(r, r.config(), kKey, kMaxConfigLayers);
  const int64_t pattern = blocks.empty() ? 1 : blocks[0] + 1;
  bool regular = static_cast<int64_t>(blocks.size()) == r.size("depth") / pattern;
  for (size_t i = 0; i < blocks.size(); i++) {
    regular = regular && blocks[i] + 1 == static_cast<int64_t>(i + 1) * pattern;
  }
  if (!regular) return r.unsupported("an irregular fullatt_block_indexes");
  r.put("n_wa_pattern", pattern);
  r.put("image_size", int64_t{560});
  r.out().boolean("clip.use_silu", true);
}

void read_colours_of_clip(ConfigReader& r) {
  read_colours(r, {0.48145466f, 0.4578275f, 0.40821073f}, {0.26862954f, 0.26130258f, 0.27577711f});
}

// The table of positions has a row for each patch of a square picture.
void read_qwen3_vision(ConfigReader& r) {
  expect_activation(r, "hidden_act", "gelu_pytorch_tanh");
  const int64_t places = r.size("num_position_embeddings"), depth = r.size("depth");
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(places)) + 0.5);
  if (side * side != places) return r.impossible("num_position_embeddings");
  r.put("image_size", side * std::min<int64_t>(r.size("patch_size"), 4096));
  r.out().boolean("clip.use_gelu", true);
  if (depth > kMaxConfigLayers) return r.impossible("depth");
  std::string deepens(static_cast<size_t>(depth), '\0');
  for (const int64_t block : integers(r, r.config(), "deepstack_visual_indexes", depth - 1)) {
    deepens[static_cast<size_t>(block)] = 1;
    r.facts.deepstack.push_back(static_cast<uint32_t>(block));
  }
  r.out().booleans("clip.vision.is_deepstack_layers", deepens);
}

constexpr Field kQwen25Vision[] = {all_of(kVisualFields), read_by(read_windows),
                                   read_by(read_colours_of_clip)};
constexpr Field kQwen3Vision[] = {all_of(kVisualFields), read_by(read_qwen3_vision),
                                  read_by(read_half_colours)};

}  // namespace

const TensorMap kQwenVlTensors = {.skipped = kQwenVlSkipped,
                                  .prefixes = kQwenVlPrefixes,
                                  .whole = kDecoderWhole,
                                  .of_layer = kQwenVlLayer,
                                  .in_file_order = true};
const TensorMap kQwen25VisionTensors =
    vision_tensors({}, kVisualPrefixes, "blocks.", kQwen25VisionWhole, kQwen25VisionLayer);
const TensorMap kQwen3VisionTensors =
    vision_tensors({}, kVisualPrefixes, "blocks.", kQwen3VisionWhole, kQwen3VisionLayer);
const std::span<const Field> kQwen25VlFields = kQwen25Vl, kQwen3VlFields = kQwen3Vl,
                             kQwen25VisionFields = kQwen25Vision, kQwen3VisionFields = kQwen3Vision;

}  // namespace sluice::hf
