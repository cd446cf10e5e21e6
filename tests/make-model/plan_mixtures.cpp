// Layers and metadata of mixture-of-experts models with special parts, from their published model
// cards. A "cut" shape has fewer layers.
#include <cmath>

#include "tests/make-model/planner.h"

namespace sluice::make_model {
namespace {

using gguf::TensorType;

std::string layer_prefix(uint32_t layer) {
  return "blk." + std::to_string(layer) + ".";
}

void plan_dense_ffn(Planner* plan, const Shape& s, const std::string& prefix, TensorType precious) {
  plan->matrix(prefix + "ffn_down.weight", {s.n_ff, s.n_embd}, precious);
  plan->matrix(prefix + "ffn_gate.weight", {s.n_embd, s.n_ff});
  plan->matrix(prefix + "ffn_up.weight", {s.n_embd, s.n_ff});
}

void plan_experts(Planner* plan, const Shape& s, const std::string& prefix, TensorType precious) {
  plan->matrix(prefix + "ffn_down_exps.weight", {s.n_ff_expert, s.n_embd, s.n_expert}, precious);
  plan->matrix(prefix + "ffn_gate_exps.weight", {s.n_embd, s.n_ff_expert, s.n_expert});
  plan->matrix(prefix + "ffn_gate_inp.weight", {s.n_embd, s.n_expert}, TensorType::kF32);
  plan->matrix(prefix + "ffn_up_exps.weight", {s.n_embd, s.n_ff_expert, s.n_expert});
}

void add_yarn(GgufWriter* writer, const Shape& s, float factor) {
  writer->add(s.arch + ".rope.scaling.type", "yarn");
  writer->add(s.arch + ".rope.scaling.factor", factor);
  writer->add(s.arch + ".rope.scaling.original_context_length", uint32_t{4096});
}

// LFM2 layers with attention; the others have a convolution.
bool attends(uint32_t layer) {
  return layer == 2 || layer == 6 || layer == 10 || layer == 14 || layer == 18 || layer == 21;
}

constexpr float kBias = 0.1f;
constexpr uint32_t kTaps = 3;                     // LFM2's convolution width
constexpr uint32_t kKeyPart = 128, kValue = 128;  // DeepSeek's head sizes before folding
constexpr uint32_t kShared = 2;                   // experts that every token uses

}  // namespace

void plan_gpt_oss(Planner* plan, const Shape& s, uint32_t layer) {
  const std::string prefix = layer_prefix(layer);
  const TensorType precious = plan->precious(layer, s.n_layer);
  const uint64_t q = uint64_t{s.n_head} * s.head_dim, kv = uint64_t{s.n_head_kv} * s.head_dim;
  const uint64_t n_embd = s.n_embd;
  const auto with_bias = [&](const char* name, uint64_t cols, uint64_t rows, float gain) {
    plan->values(prefix + name + ".bias", {rows}, kBias, 0);
    plan->matrix(prefix + name + ".weight", {cols, rows}, plan->type(), gain);
  };
  with_bias("attn_k", n_embd, kv, kAttentionGain);
  plan->norm(prefix + "attn_norm.weight", n_embd);
  with_bias("attn_output", q, n_embd, 1);
  with_bias("attn_q", n_embd, q, kAttentionGain);
  plan->values(prefix + "attn_sinks.weight", {s.n_head}, 1, 0);
  with_bias("attn_v", n_embd, kv, 1);
  plan->values(prefix + "ffn_down_exps.bias", {n_embd, s.n_expert}, kBias, 0);
  plan->values(prefix + "ffn_gate_exps.bias", {s.n_ff_expert, s.n_expert}, kBias, 0);
  plan->values(prefix + "ffn_gate_inp.bias", {s.n_expert}, kBias, 0);
  plan->values(prefix + "ffn_up_exps.bias", {s.n_ff_expert, s.n_expert}, kBias, 0);
  plan_experts(plan, s, prefix, precious);
  plan->norm(prefix + "post_attention_norm.weight", n_embd);
}

void add_gpt_oss_keys(GgufWriter* writer, const Shape& s) {
  add_yarn(writer, s, 32);
  writer->add(s.arch + ".attention.sliding_window", uint32_t{128});
}

void plan_lfm2moe(Planner* plan, const Shape& s, uint32_t layer) {
  const std::string prefix = layer_prefix(layer);
  const TensorType precious = plan->precious(layer, s.n_layer);
  const uint64_t n_embd = s.n_embd, kv = uint64_t{s.n_head_kv} * s.head_dim;
  plan->norm(prefix + "attn_norm.weight", n_embd);
  if (attends(layer)) {
    const uint64_t q = uint64_t{s.n_head} * s.head_dim;
    plan->matrix(prefix + "attn_k.weight", {n_embd, kv});
    plan->norm(prefix + "attn_k_norm.weight", s.head_dim, kAttentionGain);
    plan->matrix(prefix + "attn_output.weight", {q, n_embd});
    plan->matrix(prefix + "attn_q.weight", {n_embd, q});
    plan->norm(prefix + "attn_q_norm.weight", s.head_dim, kAttentionGain);
    plan->matrix(prefix + "attn_v.weight", {n_embd, kv}, precious);
  }
  if (layer < s.n_dense) {
    plan_dense_ffn(plan, s, prefix, precious);
  } else {
    plan->values(prefix + "exp_probs_b.bias", {s.n_expert}, kBias, 0);
    plan_experts(plan, s, prefix, precious);
  }
  plan->norm(prefix + "ffn_norm.weight", n_embd);
  if (attends(layer)) return;
  plan->values(prefix + "shortconv.conv.weight", {kTaps, n_embd}, 0.5f, 0);
  plan->matrix(prefix + "shortconv.in_proj.weight", {n_embd, 3 * n_embd});
  plan->matrix(prefix + "shortconv.out_proj.weight", {n_embd, n_embd});
}

void add_lfm2moe_keys(GgufWriter* writer, const Shape& s) {
  std::vector<int32_t> heads;
  for (uint32_t layer = 0; layer < s.n_layer; ++layer) {
    heads.push_back(attends(layer) ? static_cast<int32_t>(s.n_head_kv) : 0);
  }
  writer->add(s.arch + ".attention.head_count_kv", std::span<const int32_t>(heads));
  writer->add(s.arch + ".shortconv.l_cache", kTaps);
  writer->add(s.arch + ".expert_gating_func", uint32_t{2});
}

void plan_deepseek2(Planner* plan, const Shape& s, uint32_t layer) {
  const std::string prefix = layer_prefix(layer);
  const TensorType precious = plan->precious(layer, s.n_layer);
  const uint64_t n_embd = s.n_embd, heads = s.n_head, latent = s.value_dim;
  plan->matrix(prefix + "attn_k_b.weight", {kKeyPart, latent, heads});
  plan->matrix(prefix + "attn_kv_a_mqa.weight", {n_embd, s.head_dim});
  plan->norm(prefix + "attn_kv_a_norm.weight", latent);
  plan->norm(prefix + "attn_norm.weight", n_embd);
  plan->matrix(prefix + "attn_output.weight", {heads * kValue, n_embd});
  plan->matrix(prefix + "attn_q.weight", {n_embd, heads * (kKeyPart + s.n_rot)}, plan->type(),
               kAttentionGain);
  plan->matrix(prefix + "attn_v_b.weight", {latent, kValue, heads});
  if (layer < s.n_dense) {
    plan_dense_ffn(plan, s, prefix, precious);
  } else {
    const uint64_t shared = uint64_t{kShared} * s.n_ff_expert;
    plan_experts(plan, s, prefix, precious);
    plan->matrix(prefix + "ffn_down_shexp.weight", {shared, n_embd}, precious);
    plan->matrix(prefix + "ffn_gate_shexp.weight", {n_embd, shared});
    plan->matrix(prefix + "ffn_up_shexp.weight", {n_embd, shared});
  }
  plan->norm(prefix + "ffn_norm.weight", n_embd);
}

void add_deepseek2_keys(GgufWriter* writer, const Shape& s) {
  const auto key = [&](const char* name) { return s.arch + "." + name; };
  writer->add(key("attention.q_lora_rank"), uint32_t{0});
  writer->add(key("attention.kv_lora_rank"), s.value_dim);
  writer->add(key("attention.key_length_mla"), kKeyPart + s.n_rot);
  writer->add(key("attention.value_length_mla"), kValue);
  writer->add(key("expert_shared_count"), kShared);
  writer->add(key("expert_weights_scale"), 1.0f);
  writer->add(key("expert_weights_norm"), false);
  writer->add(key("expert_gating_func"), uint32_t{1});
  add_yarn(writer, s, 40);
  writer->add(key("rope.scaling.yarn_log_multiplier"), 0.0707f);
}

}  // namespace sluice::make_model
