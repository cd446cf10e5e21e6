// Gemma 3n and Gemma 4 E2B, from their published model cards. Both have per-layer embeddings, and
// layers that share the KV cache of earlier ones. Gemma 3n has AltUp's four streams and LAuReL.
// Gemma 4 has larger heads in layers without a window, and a wider feed-forward part where the KV
// cache is shared.
#include <limits>

#include "tests/make-model/planner.h"

namespace sluice::make_model {
namespace {

using gguf::TensorType;

constexpr uint64_t kPerLayer = 256, kStreams = 4, kLaurel = 64;
constexpr uint32_t kSharing = 10, kSparse = 10, kWindow = 512, kPeriod = 5;
constexpr float kSparsity = 1.6448536f;  // standard deviations above the mean that 5 % exceed
constexpr float kCoefficient = 0.1f;

}  // namespace

void plan_gemma3n(Planner* plan, const Shape& s, uint32_t layer) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  const TensorType precious = plan->precious(layer, s.n_layer);
  const uint64_t n_embd = s.n_embd, n_ff = s.n_ff;
  const uint64_t q = uint64_t{s.n_head} * s.head_dim, kv = uint64_t{s.n_head_kv} * s.head_dim;
  plan->values(prefix + "altup_correct_coef.weight", {kStreams, kStreams}, kCoefficient, 0);
  plan->norm(prefix + "altup_correct_scale.weight", n_embd);
  plan->values(prefix + "altup_predict_coef.weight", {kStreams, kStreams * kStreams}, kCoefficient,
               0);
  plan->matrix(prefix + "altup_router.weight", {n_embd, kStreams}, TensorType::kF32);
  plan->norm(prefix + "altup_router_norm.weight", n_embd);
  plan->matrix(prefix + "attn_k.weight", {n_embd, kv});
  plan->norm(prefix + "attn_k_norm.weight", s.head_dim);
  plan->norm(prefix + "attn_norm.weight", n_embd);
  plan->matrix(prefix + "attn_output.weight", {q, n_embd});
  plan->matrix(prefix + "attn_q.weight", {n_embd, q});
  plan->norm(prefix + "attn_q_norm.weight", s.head_dim);
  plan->matrix(prefix + "attn_v.weight", {n_embd, kv}, precious);
  plan->matrix(prefix + "ffn_down.weight", {n_ff, n_embd}, precious);
  plan->matrix(prefix + "ffn_gate.weight", {n_embd, n_ff});
  plan->norm(prefix + "ffn_norm.weight", n_embd);
  plan->matrix(prefix + "ffn_up.weight", {n_embd, n_ff});
  plan->matrix(prefix + "inp_gate.weight", {n_embd, kPerLayer});
  plan->matrix(prefix + "laurel_l.weight", {n_embd, kLaurel});
  plan->norm(prefix + "laurel_post_norm.weight", n_embd);
  plan->matrix(prefix + "laurel_r.weight", {kLaurel, n_embd});
  plan->norm(prefix + "post_attention_norm.weight", n_embd);
  plan->norm(prefix + "post_ffw_norm.weight", n_embd);
  plan->norm(prefix + "post_norm.weight", n_embd);
  plan->matrix(prefix + "proj.weight", {kPerLayer, n_embd});
}

void plan_gemma3n_globals(Planner* plan, const Shape& s) {
  const uint64_t n_embd = s.n_embd, all = kPerLayer * s.n_layer;
  plan->matrix("altup_proj.weight", {n_embd, n_embd, kStreams - 1}, TensorType::kF16);
  plan->matrix("altup_unembd_proj.weight", {n_embd, n_embd, kStreams - 1}, TensorType::kF16);
  plan->matrix("per_layer_model_proj.weight", {n_embd, all}, TensorType::kF16);
  plan->norm("per_layer_proj_norm.weight", kPerLayer);
  plan->matrix("per_layer_token_embd.weight", {all, s.n_vocab}, plan->head_type());
}

void add_gemma3n_keys(GgufWriter* writer, const Shape& s) {
  const auto key = [&](const char* name) { return s.arch + "." + name; };
  std::vector<int32_t> local;
  std::vector<float> sparsity;
  for (uint32_t layer = 0; layer < s.n_layer; ++layer) {
    local.push_back((layer + 1) % kPeriod != 0 ? 1 : 0);
    sparsity.push_back(layer < kSparse ? kSparsity : -std::numeric_limits<float>::infinity());
  }
  writer->add(key("attention.sliding_window"), kWindow);
  writer->add(key("attention.sliding_window_pattern"), std::span<const int32_t>(local));
  writer->add(key("attention.shared_kv_layers"), kSharing);
  writer->add(key("altup.active_idx"), uint32_t{0});
  writer->add(key("altup.num_inputs"), static_cast<uint32_t>(kStreams));
  writer->add(key("embedding_length_per_layer_input"), static_cast<uint32_t>(kPerLayer));
  writer->add(key("activation_sparsity_scale"), std::span<const float>(sparsity));
}

namespace {

constexpr uint32_t kSharing4 = 20, kGlobalHead = 512;

bool is_global(uint32_t layer) {
  return (layer + 1) % kPeriod == 0;
}
uint32_t width_of(const Shape& s, uint32_t layer) {
  return layer + kSharing4 >= s.n_layer ? 2 * s.n_ff : s.n_ff;
}

}  // namespace

void plan_gemma4(Planner* plan, const Shape& s, uint32_t layer) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  const TensorType precious = plan->precious(layer, s.n_layer);
  const uint64_t n_embd = s.n_embd, n_ff = width_of(s, layer);
  const uint64_t head = is_global(layer) ? kGlobalHead : s.head_dim;
  const uint64_t q = s.n_head * head, kv = s.n_head_kv * head;
  plan->matrix(prefix + "attn_k.weight", {n_embd, kv});
  plan->norm(prefix + "attn_k_norm.weight", head);
  plan->norm(prefix + "attn_norm.weight", n_embd);
  plan->matrix(prefix + "attn_output.weight", {q, n_embd});
  plan->matrix(prefix + "attn_q.weight", {n_embd, q});
  plan->norm(prefix + "attn_q_norm.weight", head);
  plan->matrix(prefix + "attn_v.weight", {n_embd, kv}, precious);
  plan->matrix(prefix + "ffn_down.weight", {n_ff, n_embd}, precious);
  plan->matrix(prefix + "ffn_gate.weight", {n_embd, n_ff});
  plan->norm(prefix + "ffn_norm.weight", n_embd);
  plan->matrix(prefix + "ffn_up.weight", {n_embd, n_ff});
  plan->matrix(prefix + "inp_gate.weight", {n_embd, kPerLayer});
  plan->values(prefix + "layer_output_scale.weight", {1}, 0, 1);
  plan->norm(prefix + "post_attention_norm.weight", n_embd);
  plan->norm(prefix + "post_ffw_norm.weight", n_embd);
  plan->norm(prefix + "post_norm.weight", n_embd);
  plan->matrix(prefix + "proj.weight", {kPerLayer, n_embd});
}

void plan_gemma4_globals(Planner* plan, const Shape& s) {
  const uint64_t all = kPerLayer * s.n_layer;
  plan->matrix("per_layer_model_proj.weight", {s.n_embd, all}, TensorType::kF16);
  plan->norm("per_layer_proj_norm.weight", kPerLayer);
  plan->matrix("per_layer_token_embd.weight", {all, s.n_vocab}, plan->head_type());
  plan->values("rope_freqs.weight", {kGlobalHead / 2}, 0, 1);
}

void add_gemma4_keys(GgufWriter* writer, const Shape& s) {
  const auto key = [&](const char* name) { return s.arch + "." + name; };
  std::vector<int32_t> local, widths;
  for (uint32_t layer = 0; layer < s.n_layer; ++layer) {
    local.push_back(is_global(layer) ? 0 : 1);
    widths.push_back(static_cast<int32_t>(width_of(s, layer)));
  }
  writer->add(key("feed_forward_length"), std::span<const int32_t>(widths));
  writer->add(key("attention.sliding_window"), kWindow);
  writer->add(key("attention.sliding_window_pattern"), std::span<const int32_t>(local));
  writer->add(key("attention.shared_kv_layers"), kSharing4);
  writer->add(key("attention.key_length"), kGlobalHead);
  writer->add(key("attention.value_length"), kGlobalHead);
  writer->add(key("attention.key_length_swa"), s.head_dim);
  writer->add(key("attention.value_length_swa"), s.head_dim);
  writer->add(key("rope.dimension_count"), kGlobalHead);
  writer->add(key("rope.dimension_count_swa"), s.head_dim);
  writer->add(key("rope.freq_base_swa"), 10000.0f);
  writer->add(key("embedding_length_per_layer_input"), static_cast<uint32_t>(kPerLayer));
  writer->add(key("final_logit_softcapping"), 30.0f);
}

}  // namespace sluice::make_model
