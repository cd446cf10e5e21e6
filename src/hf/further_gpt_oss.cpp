// gpt-oss: experts in MXFP4, with blocks and scales in separate tensors. Rows of gate and up
// alternate in one tensor.
#include "hf/further_read.h"

namespace sluice::hf {
namespace {

constexpr std::string_view kGptOssPrefixes[] = {"model."};
constexpr Name kGptOssLayer[] = {
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.router", "ffn_gate_inp"},
    {"mlp.experts.gate_up_proj_blocks", "ffn_gate_exps.weight|ffn_up_exps.weight",
     TensorTransform::kMxfp4Pairs},
    {"mlp.experts.gate_up_proj_scales", "-", TensorTransform::kSkip},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias|ffn_up_exps.bias",
     TensorTransform::kPairs},
    {"mlp.experts.down_proj_blocks", "ffn_down_exps.weight", TensorTransform::kMxfp4},
    {"mlp.experts.down_proj_scales", "-", TensorTransform::kSkip},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
};

// YaRN as in GGUF: the ends of the ramp are whole dimensions, even if "truncate" is false.
void read_yarn(ConfigFields& f, const Json& rope, gguf::MetadataWriter* out) {
  expect_rope(f, rope, "yarn");
  if (json_string(rope, "rope_type").value_or(json_string(rope, "type").value_or("")) != "yarn") {
    return;
  }
  const double factor = f.real(rope, "factor", 0);
  const double original = f.real(rope, "original_max_position_embeddings", 4096);
  if (!(factor >= 1 && factor < 1e6) || !(original >= 1 && original <= INT32_MAX)) {
    return f.fail(error(Code::kBadHeader, "config.json: the RoPE scaling is impossible"));
  }
  out->string("gpt-oss.rope.scaling.type", "yarn");
  f.put("rope.scaling.factor", factor);
  f.put("rope.scaling.original_context_length", static_cast<int64_t>(original));
  f.put("rope.scaling.yarn_beta_fast", f.real(rope, "beta_fast", 32));
  f.put("rope.scaling.yarn_beta_slow", f.real(rope, "beta_slow", 1));
  for (const char* key : {"attention_factor", "mscale", "mscale_all_dim"}) {
    if (json_find(rope, key) != nullptr) f.unsupported(key);
  }
}

void read_gpt_oss(ConfigFields& f, gguf::MetadataWriter* out, Facts*) {
  const Json& c = f.config();
  const int64_t layers = read_decoder(f, 131072);
  const int64_t head = f.size("head_dim", 64);
  read_head_size(f, head);
  f.put("attention.head_count_kv", f.size("num_key_value_heads", 8));
  f.put("rope.dimension_count", head);
  const Json& rope = rope_parameters(c);
  f.put("rope.freq_base", rope_base(f, rope, 150000));
  read_yarn(f, rope, out);
  const int64_t width = f.size("intermediate_size");
  f.put("feed_forward_length", width);
  f.put("expert_feed_forward_length", width);
  f.put("expert_count", f.size("num_local_experts", 32));
  f.put("expert_used_count", f.size("num_experts_per_tok", 4));
  f.put("attention.sliding_window", f.size("sliding_window", 128));
  const std::vector<int32_t> local = windows(f, layers, 2);
  for (size_t i = 0; i < local.size(); i++) {
    if (local[i] != (i % 2 == 0 ? 1 : 0)) f.unsupported("an unusual list of layer_types");
  }
  expect_activation(f, "hidden_act", "silu");
  if (f.real(c, "swiglu_limit", 7) != 7) f.unsupported("swiglu_limit");
}

}  // namespace

const Further kGptOss = {.model_type = "gpt_oss",
                         .arch = [](const Json&) { return std::string_view("gpt-oss"); },
                         .skipped = {},
                         .prefixes = kGptOssPrefixes,
                         .layers = "layers.",
                         .whole = kDecoderWhole,
                         .of_layer = kGptOssLayer,
                         .read = read_gpt_oss};

}  // namespace sluice::hf
