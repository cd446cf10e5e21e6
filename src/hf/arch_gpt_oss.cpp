// gpt-oss: experts in MXFP4, with blocks and scales in separate tensors. Rows of gate and up
// alternate in one tensor.
#include "hf/architecture.h"

namespace sluice::hf {
namespace {

constexpr Name kGptOssOwn[] = {
    {"post_attention_layernorm", "post_attention_norm"},
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
constexpr auto kGptOssLayer = joined(kAttentionNames, kGptOssOwn);

// YaRN as in GGUF: the ends of the ramp are whole dimensions, even if "truncate" is false.
void read_gpt_oss_rope(ConfigReader& r) {
  const Json& rope = rope_parameters(r.config());
  r.put("rope.freq_base", rope_base(r, rope, 150000));
  expect_rope(r, rope, "yarn");
  if (rope_type(rope, "") != "yarn") return;
  if (read_yarn(r, rope, 4096) == 0) return;
  for (const char* key : {"attention_factor", "mscale", "mscale_all_dim"}) {
    if (json_find(rope, key) != nullptr) r.unsupported(key);
  }
}

void check_gpt_oss(ConfigReader& r) {
  const std::vector<int32_t> local = windows(r, 2);
  for (size_t i = 0; i < local.size(); i++) {
    if (local[i] != (i % 2 == 0 ? 1 : 0)) r.unsupported("an unusual list of layer_types");
  }
  expect_activation(r, "hidden_act", "silu");
  if (r.real(r.config(), "swiglu_limit", 7) != 7) r.unsupported("swiglu_limit");
}

constexpr Field kGptOss[] = {
    size_of("context_length", "max_position_embeddings", 131072),
    all_of(kDecoderFields),
    size_of("attention.key_length", "head_dim", 64),
    size_of("attention.value_length", "head_dim", 64),
    size_of("attention.head_count_kv", "num_key_value_heads", 8),
    size_of("rope.dimension_count", "head_dim", 64),
    read_by(read_gpt_oss_rope),
    size_of("feed_forward_length", "intermediate_size"),
    size_of("expert_feed_forward_length", "intermediate_size"),
    size_of("expert_count", "num_local_experts", 32),
    size_of("expert_used_count", "num_experts_per_tok", 4),
    size_of("attention.sliding_window", "sliding_window", 128),
    read_by(check_gpt_oss),
};

}  // namespace

const TensorMap kGptOssTensors = {
    .skipped = {}, .prefixes = kModelPrefix, .whole = kDecoderWhole, .of_layer = kGptOssLayer};
const std::span<const Field> kGptOssFields = kGptOss;

}  // namespace sluice::hf
