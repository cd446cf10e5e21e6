// Qwen 3.5 (transformers' qwen3_5 and qwen3_5_moe). Norm weights are stored as w - 1, except those
// of the delta rule. Its value heads are grouped by their key head.
#include "hf/further_read.h"

namespace sluice::hf {
namespace {

constexpr std::string_view kQwen35Skipped[] = {"model.visual.", "visual.", "mtp.", "model.mtp."};
constexpr std::string_view kQwen35Prefixes[] = {"model.language_model.", "model."};
constexpr Name kQwen35Layer[] = {
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"linear_attn.in_proj_qkv", "attn_qkv", TensorTransform::kMixedRows},
    {"linear_attn.in_proj_z", "attn_gate", TensorTransform::kValueRows},
    {"linear_attn.in_proj_b", "ssm_beta", TensorTransform::kValueRows},
    {"linear_attn.in_proj_a", "ssm_alpha", TensorTransform::kValueRows},
    {"linear_attn.conv1d", "ssm_conv1d", TensorTransform::kMixedRows},
    {"linear_attn.A_log", "ssm_a", TensorTransform::kNegativeExp},
    {"linear_attn.dt_bias", "ssm_dt.bias", TensorTransform::kValueRows},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out", TensorTransform::kValueColumns},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight|ffn_up_exps.weight",
     TensorTransform::kHalves},
    {"mlp.experts.down_proj", "ffn_down_exps.weight"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
};

void read_delta(ConfigFields& f, Facts* facts) {
  facts->key_heads = f.size("linear_num_key_heads");
  facts->value_heads = f.size("linear_num_value_heads");
  facts->key_size = f.size("linear_key_head_dim");
  constexpr int64_t kMax = 1 << 16;
  const int64_t values = f.size("linear_value_head_dim");
  if (facts->key_heads > kMax || facts->value_heads > kMax || facts->key_size > kMax ||
      values > kMax || facts->value_heads % facts->key_heads != 0) {
    f.fail(error(Code::kBadHeader, "config.json: the heads of linear attention are impossible"));
    return;
  }
  f.put("ssm.conv_kernel", f.size("linear_conv_kernel_dim", 4));
  f.put("ssm.state_size", facts->key_size);
  f.put("ssm.group_count", facts->key_heads);
  f.put("ssm.time_step_rank", facts->value_heads);
  f.put("ssm.inner_size", values * facts->value_heads);
}

// The period of layers with attention.
int64_t read_interval(ConfigFields& f, int64_t layers) {
  const int64_t given = f.size("full_attention_interval", 4);
  const std::vector<std::string_view> types = layer_types(f, layers);
  for (size_t i = 0; i < types.size(); i++) {
    const bool full = static_cast<int64_t>(i + 1) % given == 0;
    if (types[i] != (full ? "full_attention" : "linear_attention")) {
      f.unsupported("an irregular list of layer_types");
      break;
    }
  }
  return given;
}

void read_qwen35(ConfigFields& f, gguf::MetadataWriter* out, Facts* facts) {
  const int64_t layers = read_decoder(f, 32768);
  const int64_t head = f.size("head_dim", 256);
  read_head_size(f, head);
  f.put("attention.head_count_kv", f.size("num_key_value_heads"));
  f.put("full_attention_interval", read_interval(f, layers));
  read_delta(f, facts);
  const Json& rope = rope_parameters(f.config());
  expect_rope(f, rope, "default");
  const double part =
      f.real(rope, "partial_rotary_factor", f.real(f.config(), "partial_rotary_factor", 0.25));
  f.put("rope.freq_base", rope_base(f, rope, 1e7));
  f.put("rope.dimension_count", static_cast<int64_t>(static_cast<double>(head) * part));
  expect_activation(f, "hidden_act", "silu");
  if (!json_bool(f.config(), "attn_output_gate").value_or(true)) f.unsupported("attn_output_gate");
  out->number("sluice.norm_offset", 1.0f);
}

void read_dense(ConfigFields& f, gguf::MetadataWriter* out, Facts* facts) {
  read_qwen35(f, out, facts);
  f.put("feed_forward_length", f.size("intermediate_size"));
}

void read_mixture(ConfigFields& f, gguf::MetadataWriter* out, Facts* facts) {
  read_qwen35(f, out, facts);
  f.put("expert_count", f.size("num_experts"));
  f.put("expert_used_count", f.size("num_experts_per_tok"));
  f.put("expert_feed_forward_length", f.size("moe_intermediate_size"));
}

}  // namespace

const Further kQwen35 = {.model_type = "qwen3_5",
                         .arch = [](const Json&) { return std::string_view("qwen35"); },
                         .skipped = kQwen35Skipped,
                         .prefixes = kQwen35Prefixes,
                         .layers = "layers.",
                         .whole = kDecoderWhole,
                         .of_layer = kQwen35Layer,
                         .read = read_dense};
const Further kQwen35Moe = {.model_type = "qwen3_5_moe",
                            .arch = [](const Json&) { return std::string_view("qwen35moe"); },
                            .skipped = kQwen35Skipped,
                            .prefixes = kQwen35Prefixes,
                            .layers = "layers.",
                            .whole = kDecoderWhole,
                            .of_layer = kQwen35Layer,
                            .read = read_mixture};

}  // namespace sluice::hf
