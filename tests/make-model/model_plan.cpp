// The quantization mixes follow llama-quantize's documented behaviour: Q6_K for the head, and for
// attn_v and ffn_down of the first and last eighth of the layers and every third one between.
// Tensors are sorted like llama-quantize does: global ones first, then by layer and name.
#include "tests/make-model/model_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "tests/make-model/planner.h"
#include "tests/make-model/random_blocks.h"

namespace sluice::make_model {
namespace {

using gguf::TensorType;

// Approximate root mean square of what one layer adds to the residual stream.
constexpr float kLayerRms = 0.5f;

// Standard deviation of the embedding. With a tied head, a token's logit grows with the share of
// its own embedding in the last hidden state. That share is limited to two deviations of all
// logits, so that greedy text does not repeat one token.
float embedding_sigma(const Shape& s) {
  if (!s.tied) return 1.0f;
  const float last_rms = kLayerRms * std::sqrt(static_cast<float>(s.n_layer));
  return 2.0f * last_rms / std::sqrt(static_cast<float>(s.n_embd));
}

// Decays between 0.5 and almost 1: exp(softplus(dt + bias) * a).
constexpr float kStepBias = -3.0f, kRate = -4.0f;

// The gated delta rule of a Qwen3.5 layer, up to and including its post norm.
void plan_delta(Planner* plan, const Shape& s, const std::string& prefix) {
  const RecurrentShape& r = s.recurrent;
  const uint64_t n_embd = s.n_embd, inner = r.inner, heads = r.heads;
  const uint64_t mixed = 2 * uint64_t{r.groups} * r.state + inner;
  plan->matrix(prefix + "attn_gate.weight", {n_embd, inner});
  plan->norm(prefix + "attn_norm.weight", n_embd);
  plan->matrix(prefix + "attn_qkv.weight", {n_embd, mixed});
  plan->values(prefix + "ssm_a", {heads}, 1.0f, kRate);
  plan->matrix(prefix + "ssm_alpha.weight", {n_embd, heads});
  plan->matrix(prefix + "ssm_beta.weight", {n_embd, heads});
  plan->values(prefix + "ssm_conv1d.weight", {r.taps, mixed}, 0.5f, 0.0f);
  plan->values(prefix + "ssm_dt.bias", {heads}, 0.5f, kStepBias);
  plan->norm(prefix + "ssm_norm.weight", inner / heads);
  plan->matrix(prefix + "ssm_out.weight", {inner, n_embd});
}

// The Mamba-2 part of a Falcon-H1 layer.
void plan_mamba2(Planner* plan, const Shape& s, const std::string& prefix) {
  const RecurrentShape& r = s.recurrent;
  const uint64_t n_embd = s.n_embd, inner = r.inner, heads = r.heads;
  const uint64_t mixed = inner + 2 * uint64_t{r.groups} * r.state;
  plan->values(prefix + "ssm_a", {1, heads}, 1.0f, kRate);
  plan->values(prefix + "ssm_conv1d.bias", {mixed}, 0.1f, 0.0f);
  plan->values(prefix + "ssm_conv1d.weight", {r.taps, mixed}, 0.5f, 0.0f);
  plan->values(prefix + "ssm_d", {1, heads}, 0.1f, 1.0f);
  plan->values(prefix + "ssm_dt.bias", {heads}, 0.5f, kStepBias);
  plan->matrix(prefix + "ssm_in.weight", {n_embd, inner + mixed + heads});
  plan->matrix(prefix + "ssm_out.weight", {inner, n_embd});
}

void plan_attention(Planner* plan, const Shape& s, const std::string& prefix, TensorType precious) {
  const uint64_t n_embd = s.n_embd;
  const uint64_t q_width = uint64_t{s.n_head} * s.head_dim;
  const uint64_t kv_width = uint64_t{s.n_head_kv} * s.head_dim;
  const bool qk_norms = s.arch.starts_with("qwen3");
  const uint64_t gates = s.arch == "qwen35" ? q_width : 0;  // stored behind each query
  plan->matrix(prefix + "attn_k.weight", {n_embd, kv_width}, plan->type(), kAttentionGain);
  if (qk_norms) plan->norm(prefix + "attn_k_norm.weight", s.head_dim, kAttentionGain);
  plan->norm(prefix + "attn_norm.weight", n_embd);
  plan->matrix(prefix + "attn_output.weight", {q_width, n_embd});
  plan->matrix(prefix + "attn_q.weight", {n_embd, q_width + gates}, plan->type(), kAttentionGain);
  if (qk_norms) plan->norm(prefix + "attn_q_norm.weight", s.head_dim, kAttentionGain);
  plan->matrix(prefix + "attn_v.weight", {n_embd, kv_width}, precious);
}

// The name of the norm before the feed-forward part, which determines its place.
std::string ffn_norm_name(const Shape& s) {
  if (s.arch == "qwen35" || s.arch == "glm4moe") return "post_attention_norm.weight";
  return s.arch == "falcon-h1" ? "ffn_norm" : "ffn_norm.weight";
}

void plan_layer(Planner* plan, const Shape& s, uint32_t layer) {
  if (s.plan != nullptr) return s.plan(plan, s, layer);
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  const uint64_t n_embd = s.n_embd, n_ff = s.n_ff;
  const TensorType precious = plan->precious(layer, s.n_layer);
  const uint32_t interval = s.recurrent.interval;
  if (interval > 0 && (layer + 1) % interval != 0) {
    plan_delta(plan, s, prefix);
  } else {
    plan_attention(plan, s, prefix, precious);
  }
  if (s.n_expert > 0) {
    const uint64_t width = s.n_ff_expert > 0 ? s.n_ff_expert : n_ff;
    plan->matrix(prefix + "ffn_down_exps.weight", {width, n_embd, s.n_expert}, precious);
    plan->matrix(prefix + "ffn_gate_exps.weight", {n_embd, width, s.n_expert});
    plan->matrix(prefix + "ffn_gate_inp.weight", {n_embd, s.n_expert}, TensorType::kF32);
    plan->norm(prefix + "ffn_norm.weight", n_embd);
    plan->matrix(prefix + "ffn_up_exps.weight", {n_embd, width, s.n_expert});
  } else {
    plan->matrix(prefix + "ffn_down.weight", {n_ff, n_embd}, precious);
    plan->matrix(prefix + "ffn_gate.weight", {n_embd, n_ff});
    plan->norm(prefix + ffn_norm_name(s), n_embd);
    plan->matrix(prefix + "ffn_up.weight", {n_embd, n_ff});
  }
  if (s.arch == "falcon-h1") plan_mamba2(plan, s, prefix);
}

// The multi-token prediction layer. It has attention, its norms change nothing, and it reads only
// the embedding of its inputs. So its prediction is right if the other layers add little.
void plan_nextn(Planner* plan, const Shape& shape) {
  Shape attends = shape;
  attends.recurrent.interval = 0;
  plan_layer(plan, attends, shape.n_layer);
  const std::string prefix = "blk." + std::to_string(shape.n_layer) + ".nextn.";
  plan->values(prefix + "eh_proj.weight", {2 * uint64_t{shape.n_embd}, shape.n_embd}, 0, 0);
  plan->tensors.back().picks = true;
  for (const char* name : {"enorm.weight", "hnorm.weight"}) {
    plan->values(prefix + name, {shape.n_embd}, 0, 1);
  }
}

}  // namespace

std::vector<PlannedTensor> plan_tensors(const Shape& shape, const FileType& type, bool pure) {
  Planner plan(type, pure, shape.n_expert > 0);
  const bool ternary = type.type == TensorType::kTQ1_0 || type.type == TensorType::kTQ2_0;
  const TensorType embedding = ternary && !pure ? TensorType::kQ4_K : type.type;
  const std::vector<uint64_t> ne = {shape.n_embd, shape.n_vocab};
  const float sigma = embedding_sigma(shape), root = std::sqrt(static_cast<float>(shape.n_embd));
  if (!shape.tied) plan.matrix("output.weight", ne, plan.head_type(), kLogitGain);
  if (shape.plan_globals != nullptr) shape.plan_globals(&plan, shape);
  plan.norm(shape.arch == "lfm2moe" ? "token_embd_norm.weight" : "output_norm.weight", shape.n_embd,
            shape.tied ? kLogitGain / (sigma * root) : 1.0f);
  plan.matrix("token_embd.weight", ne, shape.tied ? plan.head_type() : embedding, sigma * root);
  for (uint32_t layer = 0; layer < shape.n_layer; ++layer) plan_layer(&plan, shape, layer);
  if (shape.nextn) plan_nextn(&plan, shape);
  return std::move(plan.tensors);
}

void fill_blocks(const PlannedTensor& tensor, uint64_t first, uint64_t n, uint64_t seed,
                 uint8_t* out) {
  if (tensor.picks) {
    for (uint64_t i = 0; i < n; ++i) {
      const float value = (first + i) / tensor.ne[0] == (first + i) % tensor.ne[0] ? 1.0f : 0.0f;
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    }
    return;
  }
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : tensor.name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  Random random(seed, hash + first);
  block_type(tensor.type).fill(out, n, tensor.sigma, tensor.mean, random);
}

std::vector<float> llama3_rope_factors(const Shape& shape) {
  // Llama 3.2's published rope_scaling. Wavelengths between the two bounds are interpolated.
  constexpr double kFactor = 32, kLowFreq = 1, kHighFreq = 4, kTrainedContext = 8192;
  std::vector<float> factors;
  for (uint32_t i = 0; i < shape.head_dim / 2; ++i) {
    const double frequency =
        std::pow(static_cast<double>(shape.rope_freq_base), -2.0 * i / shape.head_dim);
    const double turns = kTrainedContext * frequency / (2 * std::numbers::pi);
    const double smooth = std::clamp((turns - kLowFreq) / (kHighFreq - kLowFreq), 0.0, 1.0);
    factors.push_back(static_cast<float>(1.0 / ((1 - smooth) / kFactor + smooth)));
  }
  return factors;
}

void add_hyperparameters(GgufWriter* writer, const Shape& shape, const FileType& type) {
  const auto key = [&](const char* name) { return shape.arch + "." + name; };
  writer->add("general.architecture", shape.arch);
  writer->add("general.type", "model");
  writer->add("general.name", "random " + shape.name);
  writer->add("general.file_type", type.ftype);
  writer->add("general.quantization_version", 2u);
  writer->add(key("vocab_size"), shape.n_vocab);
  writer->add(key("context_length"), shape.n_ctx);
  writer->add(key("embedding_length"), shape.n_embd);
  writer->add(key("block_count"), shape.n_layer + (shape.nextn ? 1 : 0));
  if (shape.nextn) writer->add(key("nextn_predict_layers"), 1u);
  if (!shape.two_attentions) writer->add(key("feed_forward_length"), shape.n_ff);
  writer->add(key("attention.head_count"), shape.n_head);
  if (!shape.lists_kv_heads) writer->add(key("attention.head_count_kv"), shape.n_head_kv);
  writer->add(key("attention.layer_norm_rms_epsilon"), shape.rms_eps);
  if (!shape.two_attentions) {
    const uint32_t value_dim = shape.value_dim > 0 ? shape.value_dim : shape.head_dim;
    writer->add(key("attention.key_length"), shape.head_dim);
    writer->add(key("attention.value_length"), value_dim);
    writer->add(key("rope.dimension_count"), shape.n_rot > 0 ? shape.n_rot : shape.head_dim);
  }
  writer->add(key("rope.freq_base"), shape.rope_freq_base);
  if (const RecurrentShape& r = shape.recurrent; r.inner > 0) {
    writer->add(key("ssm.conv_kernel"), r.taps);
    writer->add(key("ssm.state_size"), r.state);
    writer->add(key("ssm.group_count"), r.groups);
    writer->add(key("ssm.time_step_rank"), r.heads);
    writer->add(key("ssm.inner_size"), r.inner);
    if (r.interval > 0) writer->add(key("full_attention_interval"), r.interval);
  }
  if (shape.arch == "qwen35") {
    // M-RoPE's sections for time, height and width; equal for text
    constexpr int32_t kSections[] = {11, 11, 10, 0};
    writer->add(key("rope.dimension_sections"), std::span<const int32_t>(kSections));
  }
  if (shape.n_expert > 0) {
    writer->add(key("expert_count"), shape.n_expert);
    writer->add(key("expert_used_count"), shape.n_expert_used);
    if (shape.add_keys != nullptr) writer->add(key("leading_dense_block_count"), shape.n_dense);
    if (shape.n_ff_expert > 0) writer->add(key("expert_feed_forward_length"), shape.n_ff_expert);
  }
  if (shape.add_keys != nullptr) shape.add_keys(writer, shape);
}

}  // namespace sluice::make_model
