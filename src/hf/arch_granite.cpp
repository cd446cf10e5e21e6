// Granite 4 (transformers' granitemoehybrid): Mamba 2 and attention, with an FFN and optionally a
// mixture of experts. Models without Mamba are GGUF's granite and granitemoe, with RoPE.
#include <algorithm>

#include "hf/architecture.h"

namespace sluice::hf {
namespace {

constexpr Name kGraniteOwn[] = {
    {"post_attention_layernorm", "ffn_norm"},
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
constexpr auto kGraniteLayer = joined(kAttentionNames, kGraniteOwn);

bool has_experts(const Json& config) {
  return json_int(config, "num_local_experts").value_or(0) > 0;
}

bool has_mamba(const Json& config) {
  const Json* types = json_find(config, "layer_types");
  return types == nullptr || !types->is_array() ||
         std::any_of(types->begin(), types->end(), [](const Json& t) { return t == "mamba"; });
}

void read_mamba(ConfigReader& r) {
  const std::vector<std::string_view> types = layer_types(r);
  const int64_t heads = r.size("num_key_value_heads", r.size("num_attention_heads"));
  std::vector<int32_t> by_layer;
  for (const std::string_view type : types) {
    if (type != "attention" && type != "mamba") r.unsupported("a layer's type");
    by_layer.push_back(static_cast<int32_t>(type == "attention" ? heads : 0));
  }
  if (types.empty()) r.no_layer_types();
  r.put_list("attention.head_count_kv", by_layer);
  const int64_t ssm_heads = r.size("mamba_n_heads"), size = r.size("mamba_d_head");
  if (ssm_heads > 1 << 16 || size > 1 << 16) {
    r.impossible("mamba_n_heads or mamba_d_head");
  }
  r.put("ssm.conv_kernel", r.size("mamba_d_conv", 4));
  r.put("ssm.state_size", r.size("mamba_d_state"));
  r.put("ssm.group_count", r.size("mamba_n_groups", 1));
  r.put("ssm.time_step_rank", ssm_heads);
  r.put("ssm.inner_size", ssm_heads * size);
  if (r.flag("mamba_proj_bias", false)) r.unsupported("mamba_proj_bias");
}

int64_t granite_head_dim(ConfigReader& r) {
  return std::max<int64_t>(1, r.size("hidden_size") / r.size("num_attention_heads"));
}

void read_layers(ConfigReader& r) {
  r.put("rope.freq_base", rope_base(r, rope_parameters(r.config()), 10000));
  expect_rope(r, rope_parameters(r.config()), "default");
  static_cast<void>(layer_types(r));  // report its errors first
  const bool mamba = has_mamba(r.config());
  const bool turns = json_string(r.config(), "position_embedding_type") == "rope";
  if (mamba == turns) r.unsupported("position_embedding_type");
  if (mamba) {
    read_mamba(r);
    r.put_flag("rope.scaling.finetuned", false);
  } else {
    r.put("attention.head_count_kv", r.size("num_key_value_heads", r.size("num_attention_heads")));
  }
}

void read_ffn(ConfigReader& r) {
  const int64_t shared = r.size("shared_intermediate_size");
  r.facts.one_ffn = !has_experts(r.config());
  r.put("feed_forward_length", r.facts.one_ffn ? shared : r.size("intermediate_size"));
  if (!r.facts.one_ffn) {
    r.put("expert_count", r.size("num_local_experts"));
    r.put("expert_used_count", r.size("num_experts_per_tok"));
    r.put("expert_shared_feed_forward_length", shared);
  }
  expect_activation(r, "hidden_act", "silu");
  if (r.flag("attention_bias", false)) r.unsupported("attention_bias");
  r.out().boolean("sluice.rope_neox", true);
}

constexpr Field kGranite[] = {
    size_of("context_length", "max_position_embeddings", 2048),
    all_of(kDecoderFields),
    computed("attention.key_length", granite_head_dim),
    computed("attention.value_length", granite_head_dim),
    computed("rope.dimension_count", granite_head_dim),
    read_by(read_layers),
    real_of("attention.scale", "attention_multiplier", 1),
    real_of("embedding_scale", "embedding_multiplier", 1),
    real_of("residual_scale", "residual_multiplier", 1),
    real_of("logit_scale", "logits_scaling", 1),
    read_by(read_ffn),
};

}  // namespace

std::string_view granite_name(const Json& config) {
  if (has_mamba(config)) return "granitehybrid";
  return has_experts(config) ? "granitemoe" : "granite";
}

const TensorMap kGraniteTensors = {
    .skipped = {}, .prefixes = kModelPrefix, .whole = kDecoderWhole, .of_layer = kGraniteLayer};
const std::span<const Field> kGraniteFields = kGranite;

}  // namespace sluice::hf
