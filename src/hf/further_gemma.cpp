// The text models of Gemma 3n and Gemma 4 (transformers' gemma3n and gemma4). Norm weights are
// stored without an offset.
#include <algorithm>
#include <limits>

#include "hf/further_read.h"

namespace sluice::hf {
namespace {

constexpr std::string_view kGemmaSkipped[] = {
    "model.vision_tower.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio.",
    "vision_tower.",       "audio_tower.",       "embed_vision.",       "embed_audio."};
constexpr std::string_view kGemmaPrefixes[] = {"model.language_model.", "language_model.model.",
                                               "language_model.", "model."};
constexpr Name kWhole[] = {
    {"embed_tokens_per_layer", "per_layer_token_embd", TensorTransform::kPad},
    {"embed_tokens", "token_embd", TensorTransform::kPad},
    {"per_layer_model_projection", "per_layer_model_proj"},
    {"per_layer_projection_norm", "per_layer_proj_norm"},
    {"altup_projections", "altup_proj", TensorTransform::kStack},
    {"altup_unembed_projections", "altup_unembd_proj", TensorTransform::kStack},
    {"norm", "output_norm"},
    {"lm_head", "output"},
};
constexpr Name kGemmaLayer[] = {
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
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

// Reads what both have in common. Returns, for each layer, 1 if its attention has a sliding window.
std::vector<int32_t> read_gemma(ConfigFields& f, gguf::MetadataWriter* out, std::string_view arch,
                                int64_t* layers, int64_t period, int64_t head) {
  *layers = read_decoder(f, 131072);
  read_head_size(f, head);
  const std::vector<int32_t> local = windows(f, *layers, period);
  f.put("attention.sliding_window", f.size("sliding_window", 512));
  out->integers(std::string(arch) + ".attention.sliding_window_pattern", local);
  const auto shared = json_int(f.config(), "num_kv_shared_layers").value_or(0);
  if (shared < 0 || shared >= *layers) {
    f.fail(error(Code::kBadHeader, "config.json: num_kv_shared_layers is impossible"));
  }
  f.put("attention.shared_kv_layers", shared);
  f.put("final_logit_softcapping", f.real(f.config(), "final_logit_softcapping", 0));
  if (json_find(f.config(), "attn_logit_softcapping") != nullptr) {
    f.unsupported("attn_logit_softcapping");
  }
  if (json_bool(f.config(), "attention_bias").value_or(false)) f.unsupported("attention_bias");
  expect_activation(f, "hidden_activation", "gelu_pytorch_tanh");
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

void read_sparsity(ConfigFields& f, gguf::MetadataWriter* out, int64_t layers) {
  const Json* pattern = json_find(f.config(), "activation_sparsity_pattern");
  if (pattern == nullptr) return;
  std::vector<float> scales;
  for (size_t i = 0; i < static_cast<size_t>(layers); i++) {
    const Json* p =
        pattern->is_array() ? (i < pattern->size() ? &(*pattern)[i] : nullptr) : pattern;
    const double share = p != nullptr && p->is_number() ? p->get<double>() : -1;
    if (!(share >= 0 && share < 0.9999)) {
      f.fail(error(Code::kBadHeader, "config.json: activation_sparsity_pattern is impossible"));
      return;
    }
    scales.push_back(static_cast<float>(normal_quantile(share)));
  }
  out->floats("gemma3n.activation_sparsity_scale", scales);
}

// The feed-forward size: one number, or a list of equal numbers.
int64_t feed_forward(ConfigFields& f) {
  const Json* given = json_find(f.config(), "intermediate_size");
  if (given == nullptr || !given->is_array()) return f.size("intermediate_size");
  const auto whole = [](const Json& n) { return n.is_number_integer() ? n.get<int64_t>() : 0; };
  const int64_t first = given->empty() ? 0 : whole((*given)[0]);
  for (const Json& n : *given) {
    if (whole(n) != first) f.unsupported("an intermediate_size that differs by layer");
  }
  if (first < 1 || first > INT32_MAX) {
    f.fail(error(Code::kBadHeader, "config.json: intermediate_size is impossible"));
  }
  return first;
}

void read_gemma3n(ConfigFields& f, gguf::MetadataWriter* out, Facts* facts) {
  int64_t layers = 1;
  const int64_t head = f.size("head_dim", 256);
  read_gemma(f, out, "gemma3n", &layers, 5, head);
  f.put("attention.head_count_kv", f.size("num_key_value_heads", 2));
  f.put("rope.dimension_count", head);
  const Json& rope = rope_parameters(f.config(), "full_attention");
  expect_rope(f, rope, "default");
  f.put("rope.freq_base", rope_base(f, rope, 1e6));
  const double local = f.real(f.config(), "rope_local_base_freq", 10000);
  f.put("rope.freq_base_swa",
        f.real(rope_parameters(f.config(), "sliding_attention"), "rope_theta", local));
  f.put("feed_forward_length", feed_forward(f));
  f.put("altup.active_idx", json_int(f.config(), "altup_active_idx").value_or(0));
  f.put("altup.num_inputs", f.size("altup_num_inputs", 4));
  f.put("embedding_length_per_layer_input", f.size("hidden_size_per_layer_input", 256));
  if (!json_bool(f.config(), "altup_correct_scale").value_or(true)) {
    f.unsupported("altup_correct_scale");
  }
  read_sparsity(f, out, layers);
  facts->tied = true;
}

// RoPE of the global heads rotates only their first pairs: large divisors disable the other
// frequencies.
void read_proportional(ConfigFields& f, const Json& rope, int64_t head, Facts* facts) {
  expect_rope(f, rope, "proportional");
  const double part = f.real(rope, "partial_rotary_factor", 0.25);
  if (head > 4096 || !(part > 0 && part <= 1)) return f.unsupported("global_head_dim");
  facts->rope_factors.assign(static_cast<size_t>(head / 2), 1e30f);
  const auto turned = static_cast<int64_t>(static_cast<double>(head) * part / 2);
  std::fill_n(facts->rope_factors.begin(), turned, 1.0f);
}

void read_gemma4_heads(ConfigFields& f, gguf::MetadataWriter* out,
                       const std::vector<int32_t>& local) {
  const int64_t heads = f.size("num_key_value_heads");
  const bool apart = json_bool(f.config(), "attention_k_eq_v").value_or(false) &&
                     json_find(f.config(), "num_global_key_value_heads") != nullptr;
  if (!apart) return f.put("attention.head_count_kv", heads);
  const int64_t global = f.size("num_global_key_value_heads");
  std::vector<int32_t> by_layer;
  for (const int32_t l : local) by_layer.push_back(static_cast<int32_t>(l != 0 ? heads : global));
  out->integers("gemma4.attention.head_count_kv", by_layer);
}

void read_gemma4(ConfigFields& f, gguf::MetadataWriter* out, Facts* facts) {
  int64_t layers = 1;
  const int64_t head = f.size("head_dim", 256), global = f.size("global_head_dim", 512);
  const std::vector<int32_t> local = read_gemma(f, out, "gemma4", &layers, 6, global);
  f.put("attention.key_length_swa", head);
  f.put("attention.value_length_swa", head);
  read_gemma4_heads(f, out, local);
  const Json& rope = rope_parameters(f.config(), "full_attention");
  const Json& of_local = rope_parameters(f.config(), "sliding_attention");
  expect_rope(f, of_local, "default");
  read_proportional(f, rope, global, facts);
  f.put("rope.freq_base", f.real(rope, "rope_theta", 1e6));
  f.put("rope.freq_base_swa", f.real(of_local, "rope_theta", 10000));
  f.put("rope.dimension_count", global);
  f.put("rope.dimension_count_swa", head);
  f.put("embedding_length_per_layer_input",
        json_int(f.config(), "hidden_size_per_layer_input").value_or(256));
  const int64_t width = f.size("intermediate_size");
  const int64_t shared = json_int(f.config(), "num_kv_shared_layers").value_or(0);
  const bool wide = json_bool(f.config(), "use_double_wide_mlp").value_or(false);
  std::vector<int32_t> widths(static_cast<size_t>(layers), static_cast<int32_t>(width));
  for (int64_t i = layers - shared; wide && i < layers && i >= 0; i++) {
    widths[static_cast<size_t>(i)] = static_cast<int32_t>(std::min<int64_t>(2 * width, INT32_MAX));
  }
  out->integers("gemma4.feed_forward_length", widths);
  if (json_string(f.config(), "use_bidirectional_attention") == "all") {
    f.unsupported("use_bidirectional_attention");
  }
  if (json_bool(f.config(), "enable_moe_block").value_or(false)) {
    f.put("expert_count", f.size("num_experts"));
    f.put("expert_used_count", f.size("top_k_experts"));
    f.put("expert_feed_forward_length", f.size("moe_intermediate_size"));
  }
  facts->tied = true;
}

}  // namespace

const Further kGemma3n = {.model_type = "gemma3n",
                          .arch = [](const Json&) { return std::string_view("gemma3n"); },
                          .skipped = kGemmaSkipped,
                          .prefixes = kGemmaPrefixes,
                          .layers = "layers.",
                          .whole = kWhole,
                          .of_layer = kGemmaLayer,
                          .read = read_gemma3n};
const Further kGemma4 = {.model_type = "gemma4",
                         .arch = [](const Json&) { return std::string_view("gemma4"); },
                         .skipped = kGemmaSkipped,
                         .prefixes = kGemmaPrefixes,
                         .layers = "layers.",
                         .whole = kWhole,
                         .of_layer = kGemmaLayer,
                         .read = read_gemma4};

}  // namespace sluice::hf
