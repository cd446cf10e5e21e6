// The text models of Gemma 3n and Gemma 4 (transformers' gemma3n and gemma4). Norm weights are
// stored without an offset.
#include <algorithm>
#include <limits>

#include "hf/architecture.h"

namespace sluice::hf {
namespace {

constexpr std::string_view kGemma3nSkipped[] = {
    "model.vision_tower.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio.",
    "vision_tower.",       "audio_tower.",       "embed_vision.",       "embed_audio."};
constexpr std::string_view kGemma3nPrefixes[] = {"model.language_model.", "language_model.model.",
                                                 "language_model.", "model."};
constexpr Name kGemma3nWhole[] = {
    {"embed_tokens_per_layer", "per_layer_token_embd", TensorTransform::kPad},
    {"embed_tokens", "token_embd", TensorTransform::kPad},
    {"per_layer_model_projection", "per_layer_model_proj"},
    {"per_layer_projection_norm", "per_layer_proj_norm"},
    {"altup_projections.#", "altup_proj", TensorTransform::kStack},
    {"altup_unembed_projections.#", "altup_unembd_proj", TensorTransform::kStack},
    {"norm", "output_norm"},
    {"lm_head", "output"},
};
constexpr Name kGemma3nOwn[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"altup.modality_router", "altup_router"},
    {"altup.router_norm", "altup_router_norm"},
    {"altup.prediction_coefs", "altup_predict_coef"},
    {"altup.correction_coefs", "altup_correct_coef"},
    {"altup.correct_output_scale", "altup_correct_scale.weight"},
    {"laurel.linear_left", "laurel_l"},
    {"laurel.linear_right", "laurel_r"},
    {"laurel.post_laurel_norm", "laurel_post_norm"},
    {"layer_scalar", "layer_output_scale.weight"},
    {"router.proj", "ffn_gate_inp"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"experts.down_proj", "ffn_down_exps.weight"},
};
constexpr auto kGemma3nLayer = joined(kAttentionNames, kDenseNames, kGemma3nOwn);

// Reads what both have in common. Without a list of layer types, every `period`-th layer has no
// sliding window. Returns, for each layer, 1 if its attention has one.
std::vector<int32_t> read_attention(ConfigReader& r, int64_t period) {
  std::vector<int32_t> local = windows(r, period);
  r.put("attention.sliding_window", r.size("sliding_window", 512));
  r.put_list("attention.sliding_window_pattern", local);
  const auto shared = json_int(r.config(), "num_kv_shared_layers").value_or(0);
  if (shared < 0 || shared >= r.facts.n_layer) r.impossible("num_kv_shared_layers");
  r.put("attention.shared_kv_layers", shared);
  r.put("final_logit_softcapping", r.real(r.config(), "final_logit_softcapping", 0));
  if (json_find(r.config(), "attn_logit_softcapping") != nullptr) {
    r.unsupported("attn_logit_softcapping");
  }
  if (r.flag("attention_bias", false)) r.unsupported("attention_bias");
  expect_activation(r, "hidden_activation", "gelu_pytorch_tanh");
  r.facts.tied = true;
  return local;
}

// The x with P(X < x) = p for a normal X, by Newton's method from the middle, which is monotone.
double normal_quantile(double p) {
  if (p <= 0) return -std::numeric_limits<double>::infinity();
  double x = 0;
  for (int i = 0; i < 100; i++) {
    const double at = 0.5 * std::erfc(-x / std::sqrt(2.0)) - p;
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846);
    x -= std::clamp(at / density, -1.0, 1.0);
  }
  return x;
}

void read_sparsity(ConfigReader& r) {
  const Json* pattern = json_find(r.config(), "activation_sparsity_pattern");
  if (pattern == nullptr) return;
  std::vector<float> scales;
  for (size_t i = 0; i < static_cast<size_t>(r.facts.n_layer); i++) {
    const Json* p =
        pattern->is_array() ? (i < pattern->size() ? &(*pattern)[i] : nullptr) : pattern;
    const double share = p != nullptr && p->is_number() ? p->get<double>() : -1;
    if (!(share >= 0 && share < 0.9999)) {
      r.impossible("activation_sparsity_pattern");
      return;
    }
    scales.push_back(static_cast<float>(normal_quantile(share)));
  }
  r.put_list("activation_sparsity_scale", scales);
}

// The feed-forward size: one number, or a list of equal numbers.
int64_t feed_forward(ConfigReader& r) {
  const Json* given = json_find(r.config(), "intermediate_size");
  if (given == nullptr || !given->is_array()) return r.size("intermediate_size");
  const auto whole = [](const Json& n) { return n.is_number_integer() ? n.get<int64_t>() : 0; };
  const int64_t first = given->empty() ? 0 : whole((*given)[0]);
  for (const Json& n : *given) {
    if (whole(n) != first) r.unsupported("an intermediate_size that differs by layer");
  }
  if (first < 1 || first > INT32_MAX) {
    r.impossible("intermediate_size");
  }
  return first;
}

void read_gemma3n_attention(ConfigReader& r) {
  static_cast<void>(read_attention(r, 5));
}

void read_gemma3n_rope(ConfigReader& r) {
  const Json& rope = rope_parameters(r.config(), "full_attention");
  expect_rope(r, rope, "default");
  r.put("rope.freq_base", rope_base(r, rope, 1e6));
  const double local = r.real(r.config(), "rope_local_base_freq", 10000);
  r.put("rope.freq_base_swa",
        r.real(rope_parameters(r.config(), "sliding_attention"), "rope_theta", local));
}

int64_t active_input(ConfigReader& r) {
  return json_int(r.config(), "altup_active_idx").value_or(0);
}

void check_altup(ConfigReader& r) {
  if (!r.flag("altup_correct_scale", true)) r.unsupported("altup_correct_scale");
}

// RoPE of the global heads rotates only their first pairs: large divisors disable the other
// frequencies.
void read_proportional(ConfigReader& r, const Json& rope, int64_t head) {
  expect_rope(r, rope, "proportional");
  const double part = r.real(rope, "partial_rotary_factor", 0.25);
  if (head > 4096 || !(part > 0 && part <= 1)) return r.unsupported("global_head_dim");
  r.facts.rope_factors.assign(static_cast<size_t>(head / 2), 1e30f);
  const auto turned = static_cast<int64_t>(static_cast<double>(head) * part / 2);
  std::fill_n(r.facts.rope_factors.begin(), turned, 1.0f);
}

void read_gemma4_heads(ConfigReader& r, const std::vector<int32_t>& local) {
  const int64_t heads = r.size("num_key_value_heads");
  const bool apart = r.flag("attention_k_eq_v", false) &&
                     json_find(r.config(), "num_global_key_value_heads") != nullptr;
  if (!apart) return r.put("attention.head_count_kv", heads);
  const int64_t global = r.size("num_global_key_value_heads");
  std::vector<int32_t> by_layer;
  for (const int32_t l : local) by_layer.push_back(static_cast<int32_t>(l != 0 ? heads : global));
  r.put_list("attention.head_count_kv", by_layer);
}

void read_gemma4_attention(ConfigReader& r) {
  const int64_t head = r.size("head_dim", 256), global = r.size("global_head_dim", 512);
  const std::vector<int32_t> local = read_attention(r, 6);
  r.put("attention.key_length_swa", head);
  r.put("attention.value_length_swa", head);
  read_gemma4_heads(r, local);
  const Json& rope = rope_parameters(r.config(), "full_attention");
  const Json& of_local = rope_parameters(r.config(), "sliding_attention");
  expect_rope(r, of_local, "default");
  read_proportional(r, rope, global);
  r.put("rope.freq_base", r.real(rope, "rope_theta", 1e6));
  r.put("rope.freq_base_swa", r.real(of_local, "rope_theta", 10000));
  r.put("rope.dimension_count", global);
  r.put("rope.dimension_count_swa", head);
}

int64_t layer_input(ConfigReader& r) {
  return json_int(r.config(), "hidden_size_per_layer_input").value_or(256);
}

// The layers that share a KV cache may be twice as wide.
void read_widths(ConfigReader& r) {
  const int64_t width = r.size("intermediate_size"), layers = r.facts.n_layer;
  const int64_t shared = json_int(r.config(), "num_kv_shared_layers").value_or(0);
  const bool wide = r.flag("use_double_wide_mlp", false);
  std::vector<int32_t> widths(static_cast<size_t>(layers), static_cast<int32_t>(width));
  for (int64_t i = layers - shared; wide && i < layers && i >= 0; i++) {
    widths[static_cast<size_t>(i)] = static_cast<int32_t>(std::min<int64_t>(2 * width, INT32_MAX));
  }
  r.put_list("feed_forward_length", widths);
}

void read_gemma4_experts(ConfigReader& r) {
  if (json_string(r.config(), "use_bidirectional_attention") == "all") {
    r.unsupported("use_bidirectional_attention");
  }
  if (!r.flag("enable_moe_block", false)) return;
  r.put("expert_count", r.size("num_experts"));
  r.put("expert_used_count", r.size("top_k_experts"));
  r.put("expert_feed_forward_length", r.size("moe_intermediate_size"));
}

constexpr Field kGemma3n[] = {
    size_of("context_length", "max_position_embeddings", 131072),
    all_of(kDecoderFields),
    size_of("attention.key_length", "head_dim", 256),
    size_of("attention.value_length", "head_dim", 256),
    read_by(read_gemma3n_attention),
    size_of("attention.head_count_kv", "num_key_value_heads", 2),
    size_of("rope.dimension_count", "head_dim", 256),
    read_by(read_gemma3n_rope),
    computed("feed_forward_length", feed_forward),
    computed("altup.active_idx", active_input),
    size_of("altup.num_inputs", "altup_num_inputs", 4),
    size_of("embedding_length_per_layer_input", "hidden_size_per_layer_input", 256),
    read_by(check_altup),
    read_by(read_sparsity),
};
constexpr Field kGemma4[] = {
    size_of("context_length", "max_position_embeddings", 131072),
    all_of(kDecoderFields),
    size_of("attention.key_length", "global_head_dim", 512),
    size_of("attention.value_length", "global_head_dim", 512),
    read_by(read_gemma4_attention),
    computed("embedding_length_per_layer_input", layer_input),
    read_by(read_widths),
    read_by(read_gemma4_experts),
};

}  // namespace

const TensorMap kGemma3nTensors = {.skipped = kGemma3nSkipped,
                                   .prefixes = kGemma3nPrefixes,
                                   .whole = kGemma3nWhole,
                                   .of_layer = kGemma3nLayer};
const std::span<const Field> kGemma3nFields = kGemma3n, kGemma4Fields = kGemma4;

}  // namespace sluice::hf
