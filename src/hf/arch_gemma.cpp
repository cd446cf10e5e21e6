// Gemma, Gemma 2, the text model of Gemma 3, and EmbeddingGemma. Norm weights are stored as w - 1.
#include <algorithm>

#include "gguf/printable.h"
#include "hf/architecture.h"

namespace sluice::hf {
namespace {

constexpr Name kGemma1Own[] = {{"self_attn.rotary_emb.inv_freq", "-", TensorTransform::kSkip},
                               {"post_attention_layernorm", "ffn_norm"}};
constexpr Name kGemma2Own[] = {{"self_attn.rotary_emb.inv_freq", "-", TensorTransform::kSkip},
                               {"post_attention_layernorm", "post_attention_norm"},
                               {"pre_feedforward_layernorm", "ffn_norm"},
                               {"post_feedforward_layernorm", "post_ffw_norm"}};
constexpr auto kGemma1Layer = joined(kAttentionNames, kDenseNames, kGemma1Own);
constexpr auto kGemma2Layer = joined(kAttentionNames, kDenseNames, kGemma2Own);

int64_t gemma_head_dim(ConfigReader& r) {
  return r.size("head_dim", 256);
}

void check_gemma(ConfigReader& r) {
  const std::string_view act = json_string(r.config(), "hidden_activation").value_or("");
  if (!act.empty() && !act.starts_with("gelu")) {
    r.unsupported(("the activation \"" + gguf::printable(act) + "\"").c_str());
  }
  check_dense(r);
}

void read_gemma_rope(ConfigReader& r) {
  read_dense_rope(r, gemma_head_dim(r), 10000);
}

// Layers with a window have a RoPE of their own.
void read_gemma3_rope(ConfigReader& r) {
  double local = r.real(r.config(), "rope_local_base_freq", 10000);
  const Json* all = json_find(r.config(), "rope_parameters");
  const Json* own = all == nullptr ? nullptr : json_find(*all, "sliding_attention");
  if (own != nullptr) local = r.real(*own, "rope_theta", local);
  read_dense_rope(r, gemma_head_dim(r), 1e6, local);
}

// The period of layers with global attention: given, or derived from the list of layer types.
int64_t window_pattern(ConfigReader& r) {
  if (json_find(r.config(), "layer_types") == nullptr) return r.size("sliding_window_pattern", 6);
  const std::vector<std::string_view> types = layer_types(r);
  const auto first =
      static_cast<size_t>(std::find(types.begin(), types.end(), "full_attention") - types.begin());
  for (size_t i = 0; i < types.size(); i++) {
    const bool full = first < types.size() && i % (first + 1) == first;
    if (types[i] != (full ? "full_attention" : "sliding_attention")) {
      r.unsupported("an irregular list of layer_types");
      return 1;
    }
  }
  return static_cast<int64_t>(first + 1);
}

void read_scale(ConfigReader& r) {
  const auto usual = static_cast<double>(gemma_head_dim(r));
  const double scalar = r.real(r.config(), "query_pre_attn_scalar", usual);
  if (!(scalar > 0)) {
    return r.fail(error(Code::kBadHeader, "config.json: query_pre_attn_scalar is not positive"));
  }
  r.put("attention.scale", 1 / std::sqrt(scalar));
}

void check_soft_caps(ConfigReader& r) {
  if (json_find(r.config(), "attn_logit_softcapping") != nullptr ||
      json_find(r.config(), "final_logit_softcapping") != nullptr) {
    r.unsupported("a soft cap in gemma3");
  }
}

void write_norm_offset(ConfigReader& r) {
  r.out().number("sluice.norm_offset", 1.0f);
}

constexpr Field kGemmaStart[] = {
    read_by(check_gemma),
    all_of(kDenseFields),
    computed("attention.key_length", gemma_head_dim),
    computed("attention.value_length", gemma_head_dim),
    real_of("attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6),
    computed("rope.dimension_count", gemma_head_dim),
};
constexpr Field kGemma[] = {all_of(kGemmaStart), read_by(read_gemma_rope),
                            read_by(write_norm_offset)};
constexpr Field kGemma2[] = {
    all_of(kGemmaStart),
    read_by(read_gemma_rope),
    read_by(read_window),
    read_by(read_scale),
    real_of("attn_logit_softcapping", "attn_logit_softcapping", 50),
    real_of("final_logit_softcapping", "final_logit_softcapping", 30),
    read_by(write_norm_offset),
};
constexpr Field kGemma3[] = {
    all_of(kGemmaStart),        read_by(read_gemma3_rope),
    read_by(read_window),       computed("attention.sliding_window_pattern", window_pattern),
    read_by(read_scale),        read_by(check_soft_caps),
    read_by(write_norm_offset),
};

}  // namespace

std::string_view gemma3_name(const Json& config) {
  const bool sees_all = json_bool(config, "use_bidirectional_attention").value_or(false);
  return sees_all ? "gemma-embedding" : "gemma3";
}

// Gemma 3 with pictures, in the names of older and newer checkpoints.
constexpr std::string_view kGemma2Skipped[] = {"vision_tower.", "multi_modal_projector.",
                                               "model.vision_tower.",
                                               "model.multi_modal_projector."};
constexpr std::string_view kGemma2Prefixes[] = {"model.language_model.", "language_model.model.",
                                                "language_model.", "model."};

const TensorMap kGemmaTensors = {.skipped = {},
                                 .prefixes = kModelPrefix,
                                 .whole = kDecoderWhole,
                                 .of_layer = kGemma1Layer,
                                 .in_file_order = true};
const TensorMap kGemma2Tensors = {.skipped = kGemma2Skipped,
                                  .prefixes = kGemma2Prefixes,
                                  .whole = kDecoderWhole,
                                  .of_layer = kGemma2Layer,
                                  .in_file_order = true};
const std::span<const Field> kGemmaFields = kGemma, kGemma2Fields = kGemma2,
                             kGemma3Fields = kGemma3;

}  // namespace sluice::hf
