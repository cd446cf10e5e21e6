// LFM2 and LFM2-MoE (transformers' Lfm2 and Lfm2Moe): attention and short convolutions.
#include "hf/architecture.h"

namespace sluice::hf {
namespace {

constexpr Name kLfm2Whole[] = {{"embed_tokens", "token_embd"},
                               {"embedding_norm", "token_embd_norm"},
                               {"norm", "output_norm"},
                               {"lm_head", "output"}};
constexpr Name kLfm2Layer[] = {
    {"operator_norm", "attn_norm"},
    {"ffn_norm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.out_proj", "attn_output"},
    {"self_attn.q_layernorm", "attn_q_norm"},
    {"self_attn.k_layernorm", "attn_k_norm"},
    {"conv.conv", "shortconv.conv"},
    {"conv.in_proj", "shortconv.in_proj"},
    {"conv.out_proj", "shortconv.out_proj"},
    {"feed_forward.w1", "ffn_gate"},
    {"feed_forward.w2", "ffn_down"},
    {"feed_forward.w3", "ffn_up"},
    {"feed_forward.gate", "ffn_gate_inp"},
    {"feed_forward.expert_bias", "exp_probs_b.bias"},
    {"feed_forward.experts.#.w1", "ffn_gate.#"},
    {"feed_forward.experts.#.w2", "ffn_down.#"},
    {"feed_forward.experts.#.w3", "ffn_up.#"},
};

// The feed-forward size of the dense model: usually two thirds of the config's value, rounded up.
// 0: impossible.
int64_t lfm2_feed_forward(const Json& config) {
  constexpr int64_t kMax = INT32_MAX;
  const std::optional<int64_t> given = json_int(
      config, json_find(config, "block_ff_dim") != nullptr ? "block_ff_dim" : "intermediate_size");
  if (!given || *given < 1 || *given > kMax) return 0;
  if (!json_bool(config, "block_auto_adjust_ff_dim").value_or(true)) return *given;
  const int64_t multiple = json_int(config, "block_multiple_of").value_or(256);
  const double multiplier = json_number(config, "block_ffn_dim_multiplier").value_or(1);
  if (multiple < 1 || multiple > kMax || !(multiplier > 0 && multiplier < 64)) return 0;
  const auto n = static_cast<int64_t>(multiplier * static_cast<double>(2 * *given / 3));
  return (n + multiple - 1) / multiple * multiple;
}

// For each layer, `heads` if it has attention, or 0 if it has a convolution. Empty when the config
// does not list the layers.
std::vector<int32_t> lfm2_heads(const Json& config, int64_t n_layer, int64_t heads) {
  std::vector<int32_t> out(static_cast<size_t>(n_layer));
  const auto attends = [&](size_t layer) { out[layer] = static_cast<int32_t>(heads); };
  const Json* types = json_find(config, "layer_types");
  if (types != nullptr && types->is_array() && types->size() == out.size()) {
    for (size_t i = 0; i < out.size(); ++i) {
      if ((*types)[i] == "full_attention") {
        attends(i);
      } else if ((*types)[i] != "conv") {
        return {};
      }
    }
    return out;
  }
  const Json* indices = json_find(config, "full_attn_idxs");
  if (types != nullptr || indices == nullptr || !indices->is_array()) return {};
  for (const Json& index : *indices) {
    const int64_t layer = index.is_number_integer() ? index.get<int64_t>() : -1;
    if (layer < 0 || layer >= n_layer) return {};
    attends(static_cast<size_t>(layer));
  }
  return out;
}

void check_lfm2(ConfigReader& r) {
  expect_activation(r, "hidden_act", "silu");
  check_dense(r);
  if (r.flag("conv_bias", false)) r.unsupported("conv_bias");
}

void read_lfm2_rope(ConfigReader& r) {
  read_dense_rope(r, head_dim(r), 1e6);
}

void read_dense_width(ConfigReader& r) {
  const int64_t width = lfm2_feed_forward(r.config());
  if (width < 1) return r.impossible("intermediate_size");
  r.put("feed_forward_length", width);
}

void read_heads(ConfigReader& r) {
  const int64_t heads = r.size("num_key_value_heads", r.size("num_attention_heads"));
  const std::vector<int32_t> by_layer = lfm2_heads(r.config(), r.facts.n_layer, heads);
  if (by_layer.empty()) return r.no_layer_types();
  r.put_list("attention.head_count_kv", by_layer);
  r.facts.tied = r.flag("tie_embedding", r.facts.tied);
}

void read_routing(ConfigReader& r) {
  r.put("expert_gating_func", int64_t{2});
  r.put_flag("expert_weights_norm", r.flag("norm_topk_prob", true));
}

constexpr Field kStart[] = {
    read_by(check_lfm2),
    size_of("context_length", "max_position_embeddings"),
    size_of("embedding_length", "hidden_size"),
    kLayers,
    size_of("attention.head_count", "num_attention_heads"),
    computed("attention.key_length", head_dim),
    computed("attention.value_length", head_dim),
    real_of("attention.layer_norm_rms_epsilon", "norm_eps", 1e-5),
    computed("rope.dimension_count", head_dim),
    read_by(read_lfm2_rope),
};
constexpr Field kLfm2[] = {
    all_of(kStart),
    read_by(read_dense_width),
    size_of("shortconv.l_cache", "conv_L_cache", 3),
    read_by(read_heads),
};
constexpr Field kLfm2Moe[] = {
    all_of(kStart),
    size_of("feed_forward_length", "intermediate_size"),
    size_of("shortconv.l_cache", "conv_L_cache", 3),
    read_by(read_heads),
    size_of("expert_count", "num_experts"),
    size_of("expert_used_count", "num_experts_per_tok"),
    size_of("expert_feed_forward_length", "moe_intermediate_size"),
    real_of("expert_weights_scale", "routed_scaling_factor", 1),
    read_by(read_routing),
};

}  // namespace

const TensorMap kLfm2Tensors = {.skipped = {},
                                .prefixes = kModelPrefix,
                                .whole = kLfm2Whole,
                                .of_layer = kLfm2Layer,
                                .in_file_order = true};
const std::span<const Field> kLfm2Fields = kLfm2, kLfm2MoeFields = kLfm2Moe;

}  // namespace sluice::hf
