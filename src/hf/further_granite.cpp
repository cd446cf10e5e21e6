// Granite 4 (transformers' granitemoehybrid): Mamba 2 and attention, with an FFN and optionally a
// mixture of experts. Models without Mamba are GGUF's granite and granitemoe, with RoPE.
#include <algorithm>

#include "hf/further_read.h"

namespace sluice::hf {
namespace {

constexpr std::string_view kGranitePrefixes[] = {"model."};
constexpr Name kGraniteLayer[] = {
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"mamba.in_proj", "ssm_in"},
    {"mamba.conv1d", "ssm_conv1d"},
    {"mamba.dt_bias", "ssm_dt.bias"},
    {"mamba.A_log", "ssm_a", TensorTransform::kNegativeExp},
    {"mamba.D", "ssm_d"},
    {"mamba.norm", "ssm_norm"},
    {"mamba.out_proj", "ssm_out"},
    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"block_sparse_moe.input_linear", "ffn_gate_exps|ffn_up_exps", TensorTransform::kHalves},
    {"block_sparse_moe.output_linear", "ffn_down_exps"},
    {"shared_mlp.input_linear", "ffn_gate_shexp|ffn_up_shexp", TensorTransform::kHalves},
    {"shared_mlp.output_linear", "ffn_down_shexp"},
};

bool has_experts(const Json& config) {
  return json_int(config, "num_local_experts").value_or(0) > 0;
}

bool has_mamba(const Json& config) {
  const Json* types = json_find(config, "layer_types");
  return types == nullptr || !types->is_array() ||
         std::any_of(types->begin(), types->end(), [](const Json& t) { return t == "mamba"; });
}

std::string_view arch_of(const Json& config) {
  if (has_mamba(config)) return "granitehybrid";
  return has_experts(config) ? "granitemoe" : "granite";
}

void read_mamba(ConfigFields& f, gguf::MetadataWriter* out, int64_t layers) {
  const std::vector<std::string_view> types = layer_types(f, layers);
  const int64_t heads = f.size("num_key_value_heads", f.size("num_attention_heads"));
  std::vector<int32_t> by_layer;
  for (const std::string_view type : types) {
    if (type != "attention" && type != "mamba") f.unsupported("a layer's type");
    by_layer.push_back(static_cast<int32_t>(type == "attention" ? heads : 0));
  }
  if (types.empty()) {
    f.fail(error(Code::kBadHeader, "config.json: layer_types does not list the layers"));
  }
  out->integers("granitehybrid.attention.head_count_kv", by_layer);
  const int64_t ssm_heads = f.size("mamba_n_heads"), size = f.size("mamba_d_head");
  if (ssm_heads > 1 << 16 || size > 1 << 16) {
    f.fail(error(Code::kBadHeader, "config.json: mamba_n_heads or mamba_d_head is impossible"));
  }
  f.put("ssm.conv_kernel", f.size("mamba_d_conv", 4));
  f.put("ssm.state_size", f.size("mamba_d_state"));
  f.put("ssm.group_count", f.size("mamba_n_groups", 1));
  f.put("ssm.time_step_rank", ssm_heads);
  f.put("ssm.inner_size", ssm_heads * size);
  if (json_bool(f.config(), "mamba_proj_bias").value_or(false)) f.unsupported("mamba_proj_bias");
}

void read_granite(ConfigFields& f, gguf::MetadataWriter* out, Facts* facts) {
  const Json& c = f.config();
  const int64_t layers = read_decoder(f, 2048);
  const int64_t heads = f.size("num_attention_heads"), width = f.size("hidden_size");
  const int64_t head = std::max<int64_t>(1, width / heads);
  read_head_size(f, head);
  f.put("rope.dimension_count", head);
  f.put("rope.freq_base", rope_base(f, rope_parameters(c), 10000));
  expect_rope(f, rope_parameters(c), "default");
  static_cast<void>(layer_types(f, layers));  // report its errors first
  const bool mamba = has_mamba(c);
  const bool turns = json_string(c, "position_embedding_type") == "rope";
  if (mamba == turns) f.unsupported("position_embedding_type");
  if (mamba) {
    read_mamba(f, out, layers);
    out->boolean("granitehybrid.rope.scaling.finetuned", false);
  } else {
    f.put("attention.head_count_kv", f.size("num_key_value_heads", heads));
  }
  f.put("attention.scale", f.real(c, "attention_multiplier", 1));
  f.put("embedding_scale", f.real(c, "embedding_multiplier", 1));
  f.put("residual_scale", f.real(c, "residual_multiplier", 1));
  f.put("logit_scale", f.real(c, "logits_scaling", 1));
  const int64_t shared = f.size("shared_intermediate_size");
  f.put("feed_forward_length", has_experts(c) ? f.size("intermediate_size") : shared);
  if (has_experts(c)) {
    f.put("expert_count", f.size("num_local_experts"));
    f.put("expert_used_count", f.size("num_experts_per_tok"));
    f.put("expert_shared_feed_forward_length", shared);
  }
  expect_activation(f, "hidden_act", "silu");
  if (json_bool(c, "attention_bias").value_or(false)) f.unsupported("attention_bias");
  out->boolean("sluice.rope_neox", true);
  facts->one_ffn = !has_experts(c);
  facts->tied = json_bool(c, "tie_word_embeddings").value_or(true);
}

}  // namespace

const Further kGraniteHybrid = {.model_type = "granitemoehybrid",
                                .arch = arch_of,
                                .skipped = {},
                                .prefixes = kGranitePrefixes,
                                .layers = "layers.",
                                .whole = kDecoderWhole,
                                .of_layer = kGraniteLayer,
                                .read = read_granite};

}  // namespace sluice::hf
