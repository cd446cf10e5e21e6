// Qwen 3.5 (transformers' qwen3_5 and qwen3_5_moe). Norm weights are stored as w - 1, except those
// of the delta rule. Its value heads are grouped by their key head.
#include "hf/architecture.h"

namespace sluice::hf {
namespace {

constexpr std::string_view kQwen35Skipped[] = {"model.visual.", "visual.", "mtp.", "model.mtp."};
constexpr std::string_view kQwen35Prefixes[] = {"model.language_model.", "model."};
constexpr Name kQwen35Own[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"linear_attn.in_proj_qkv", "attn_qkv", TensorTransform::kMixedRows},
    {"linear_attn.in_proj_z", "attn_gate", TensorTransform::kValueRows},
    {"linear_attn.in_proj_b", "ssm_beta", TensorTransform::kValueRows},
    {"linear_attn.in_proj_a", "ssm_alpha", TensorTransform::kValueRows},
    {"linear_attn.conv1d", "ssm_conv1d", TensorTransform::kMixedRows},
    {"linear_attn.A_log", "ssm_a", TensorTransform::kNegativeExp},
    {"linear_attn.dt_bias", "ssm_dt.bias", TensorTransform::kValueRows},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out", TensorTransform::kValueColumns},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight|ffn_up_exps.weight",
     TensorTransform::kHalves},
    {"mlp.experts.down_proj", "ffn_down_exps.weight"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
};
constexpr auto kQwen35Layer = joined(kAttentionNames, kDenseNames, kQwen35Own);

void read_delta(ConfigReader& r) {
  r.facts.key_heads = r.size("linear_num_key_heads");
  r.facts.value_heads = r.size("linear_num_value_heads");
  r.facts.key_size = r.size("linear_key_head_dim");
  constexpr int64_t kMax = 1 << 16;
  const int64_t values = r.size("linear_value_head_dim");
  if (r.facts.key_heads > kMax || r.facts.value_heads > kMax || r.facts.key_size > kMax ||
      values > kMax || r.facts.value_heads % r.facts.key_heads != 0) {
    r.fail(error(Code::kBadHeader, "config.json: the heads of linear attention are impossible"));
    return;
  }
  r.put("ssm.conv_kernel", r.size("linear_conv_kernel_dim", 4));
  r.put("ssm.state_size", r.facts.key_size);
  r.put("ssm.group_count", r.facts.key_heads);
  r.put("ssm.time_step_rank", r.facts.value_heads);
  r.put("ssm.inner_size", values * r.facts.value_heads);
}

// The period of layers with attention.
int64_t interval(ConfigReader& r) {
  const int64_t given = r.size("full_attention_interval", 4);
  const std::vector<std::string_view> types = layer_types(r);
  for (size_t i = 0; i < types.size(); i++) {
    const bool full = static_cast<int64_t>(i + 1) % given == 0;
    if (types[i] != (full ? "full_attention" : "linear_attention")) {
      r.unsupported("an irregular list of layer_types");
      break;
    }
  }
  return given;
}

void read_qwen35_rest(ConfigReader& r) {
  const Json& rope = rope_parameters(r.config());
  expect_rope(r, rope, "default");
  const double part =
      r.real(rope, "partial_rotary_factor", r.real(r.config(), "partial_rotary_factor", 0.25));
  r.put("rope.freq_base", rope_base(r, rope, 1e7));
  r.put("rope.dimension_count",
        static_cast<int64_t>(static_cast<double>(r.size("head_dim", 256)) * part));
  expect_activation(r, "hidden_act", "silu");
  if (!r.flag("attn_output_gate", true)) r.unsupported("attn_output_gate");
  r.out().number("sluice.norm_offset", 1.0f);
}

constexpr Field kQwen35Start[] = {
    size_of("context_length", "max_position_embeddings", 32768),
    all_of(kDecoderFields),
    size_of("attention.key_length", "head_dim", 256),
    size_of("attention.value_length", "head_dim", 256),
    size_of("attention.head_count_kv", "num_key_value_heads"),
    computed("full_attention_interval", interval),
    read_by(read_delta),
    read_by(read_qwen35_rest),
};
constexpr Field kQwen35[] = {
    all_of(kQwen35Start),
    size_of("feed_forward_length", "intermediate_size"),
};
constexpr Field kQwen35Moe[] = {
    all_of(kQwen35Start),
    size_of("expert_count", "num_experts"),
    size_of("expert_used_count", "num_experts_per_tok"),
    size_of("expert_feed_forward_length", "moe_intermediate_size"),
};

}  // namespace

const TensorMap kQwen35Tensors = {.skipped = kQwen35Skipped,
                                  .prefixes = kQwen35Prefixes,
                                  .whole = kDecoderWhole,
                                  .of_layer = kQwen35Layer};
const std::span<const Field> kQwen35Fields = kQwen35, kQwen35MoeFields = kQwen35Moe;

}  // namespace sluice::hf
