// Shapes are from the model cards; the mixtures from llama-quantize's documented behaviour (Q6_K
// for the head and for attn_v and ffn_down of the first and last eighth of the layers and every
// third one between). llama-quantize sorts tensors by layer and then by name, global ones first.
#include "tools/model_plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tools/random_blocks.h"

namespace sluice::tools {
namespace {

using gguf::TensorType;

const Shape kShapes[] = {
    {.name = "tinyllama-1.1b",
     .arch = "llama",
     .n_layer = 22,
     .n_embd = 2048,
     .n_head = 32,
     .n_head_kv = 4,
     .head_dim = 64,
     .n_ff = 5632,
     .n_vocab = 32000,
     .n_ctx = 2048},
    {.name = "qwen3-0.6b",
     .arch = "qwen3",
     .n_layer = 28,
     .n_embd = 1024,
     .n_head = 16,
     .n_head_kv = 8,
     .head_dim = 128,
     .n_ff = 3072,
     .n_vocab = 151936,
     .n_ctx = 40960,
     .tied = true,
     .rms_eps = 1e-6f,
     .rope_freq_base = 1e6f,
     .vocabulary = VocabularyKind::kQwen},
    {.name = "llama-3.2-1b",
     .arch = "llama",
     .n_layer = 16,
     .n_embd = 2048,
     .n_head = 32,
     .n_head_kv = 8,
     .head_dim = 64,
     .n_ff = 8192,
     .n_vocab = 128256,
     .n_ctx = 131072,
     .tied = true,
     .rope_freq_base = 5e5f,
     .llama3_rope = true,
     .vocabulary = VocabularyKind::kLlama3},
    {.name = "llama-2-7b",
     .arch = "llama",
     .n_layer = 32,
     .n_embd = 4096,
     .n_head = 32,
     .n_head_kv = 32,
     .head_dim = 128,
     .n_ff = 11008,
     .n_vocab = 32000,
     .n_ctx = 4096},
    {.name = "qwen3-30b-a3b",
     .arch = "qwen3moe",
     .n_layer = 48,
     .n_embd = 2048,
     .n_head = 32,
     .n_head_kv = 4,
     .head_dim = 128,
     .n_ff = 6144,
     .n_vocab = 151936,
     .n_ctx = 40960,
     .n_expert = 128,
     .n_expert_used = 8,
     .n_ff_expert = 768,
     .rms_eps = 1e-6f,
     .rope_freq_base = 1e6f,
     .vocabulary = VocabularyKind::kQwen},
    {.name = "qwen3.5-0.8b",
     .arch = "qwen35",
     .n_layer = 24,
     .n_embd = 1024,
     .n_head = 8,
     .n_head_kv = 2,
     .head_dim = 256,
     .n_ff = 3584,
     .n_vocab = 248320,
     .n_ctx = 262144,
     .tied = true,
     .rms_eps = 1e-6f,
     .rope_freq_base = 1e7f,
     .vocabulary = VocabularyKind::kQwen,
     .n_rot = 64,
     .recurrent = {.inner = 2048, .state = 128, .heads = 16, .groups = 16, .interval = 4}},
    {.name = "falcon-h1-0.5b",
     .arch = "falcon-h1",
     .n_layer = 36,
     .n_embd = 1024,
     .n_head = 8,
     .n_head_kv = 2,
     .head_dim = 64,
     .n_ff = 2048,
     .n_vocab = 32784,
     .n_ctx = 16384,
     .rope_freq_base = 1e11f,
     .vocabulary = VocabularyKind::kQwen,
     .recurrent = {.inner = 1536, .state = 128, .heads = 24, .groups = 1}},
    {.name = "tiny",
     .arch = "llama",
     .n_layer = 4,
     .n_embd = 256,
     .n_head = 8,
     .n_head_kv = 4,
     .head_dim = 32,
     .n_ff = 512,
     .n_vocab = 1024,
     .n_ctx = 2048},
};

constexpr FileType kFileTypes[] = {
    {"f32", TensorType::kF32, TensorType::kF32, false, 0},
    {"f16", TensorType::kF16, TensorType::kF16, false, 1},
    {"bf16", TensorType::kBF16, TensorType::kBF16, false, 32},
    {"q4_0", TensorType::kQ4_0, TensorType::kQ6_K, false, 2},
    {"q4_1", TensorType::kQ4_1, TensorType::kQ6_K, false, 3},
    {"q5_0", TensorType::kQ5_0, TensorType::kQ6_K, false, 8},
    {"q5_1", TensorType::kQ5_1, TensorType::kQ6_K, false, 9},
    {"q8_0", TensorType::kQ8_0, TensorType::kQ8_0, false, 7},
    {"q2_k", TensorType::kQ2_K, TensorType::kQ6_K, false, 10},
    {"q3_k", TensorType::kQ3_K, TensorType::kQ6_K, false, 11},
    {"q4_k", TensorType::kQ4_K, TensorType::kQ6_K, false, 14},
    {"q4_k_m", TensorType::kQ4_K, TensorType::kQ6_K, true, 15},
    {"q5_k", TensorType::kQ5_K, TensorType::kQ6_K, false, 16},
    {"q5_k_m", TensorType::kQ5_K, TensorType::kQ6_K, true, 17},
    {"q6_k", TensorType::kQ6_K, TensorType::kQ6_K, false, 18},
    {"iq4_nl", TensorType::kIQ4_NL, TensorType::kQ6_K, false, 25},
    {"iq4_xs", TensorType::kIQ4_XS, TensorType::kQ6_K, false, 30},
    {"mxfp4", TensorType::kMXFP4, TensorType::kQ8_0, false, 38},
    {"tq1_0", TensorType::kTQ1_0, TensorType::kQ6_K, false, 36},
    {"tq2_0", TensorType::kTQ2_0, TensorType::kQ6_K, false, 37},
};

// Rows that are no multiple of a type's block take the nearest type of blocks of 32, or F16.
TensorType fitting(TensorType type, uint64_t cols) {
  if (cols % block_type(type).block_size == 0) return type;
  switch (type) {
    case TensorType::kQ2_K:
    case TensorType::kQ3_K:
    case TensorType::kIQ4_XS:
      type = TensorType::kIQ4_NL;
      break;
    case TensorType::kQ4_K:
      type = TensorType::kQ5_0;
      break;
    case TensorType::kQ5_K:
      type = TensorType::kQ5_1;
      break;
    case TensorType::kQ6_K:
      type = TensorType::kQ8_0;
      break;
    default:
      type = TensorType::kQ4_0;
  }
  return cols % 32 == 0 ? type : TensorType::kF16;
}

bool takes_more_bits(uint32_t layer, uint32_t n_layer) {
  const uint32_t eighth = n_layer / 8;
  return layer < eighth || layer >= 7 * n_layer / 8 || (layer - eighth) % 3 == 2;
}

// A matrix of deviation 1/sqrt(cols) keeps the size of what it multiplies. Queries and keys are
// larger, so that attention chooses, and so are logits, so that some token leads.
constexpr float kAttentionGain = 1.5f, kLogitGain = 2.0f;
// About what one layer adds to the residual stream, as a root mean square.
constexpr float kLayerRms = 0.5f;

// Deviation of the embedding. Tied, a token's logit grows with the share of its own embedding left
// in the last hidden state: it is kept to two deviations of all logits, lest greedy text stand
// still.
float embedding_sigma(const Shape& s) {
  if (!s.tied) return 1.0f;
  const float last_rms = kLayerRms * std::sqrt(static_cast<float>(s.n_layer));
  return 2.0f * last_rms / std::sqrt(static_cast<float>(s.n_embd));
}

class Planner {
 public:
  Planner(const FileType& type, bool pure) : type_(type), pure_(pure) {}

  void matrix(std::string name, std::vector<uint64_t> ne, TensorType type, float gain = 1.0f) {
    const float sigma = gain / std::sqrt(static_cast<float>(ne[0]));
    const TensorType fits = fitting(type, ne[0]);
    add(std::move(name), fits, std::move(ne), sigma, 0.0f);
  }
  void matrix(std::string name, std::vector<uint64_t> ne) {
    matrix(std::move(name), std::move(ne), type_.type);
  }
  // Small tensors that stay F32.
  void values(std::string name, std::vector<uint64_t> ne, float sigma, float mean) {
    add(std::move(name), TensorType::kF32, std::move(ne), sigma, mean);
  }
  void norm(std::string name, uint64_t n, float mean = 1.0f) {
    add(std::move(name), TensorType::kF32, {n}, 0.1f * mean, mean);
  }
  [[nodiscard]] TensorType type() const { return type_.type; }
  [[nodiscard]] TensorType head_type() const { return pure_ ? type_.type : type_.heads; }
  [[nodiscard]] TensorType precious(uint32_t layer, uint32_t n_layer) const {
    const bool more = type_.more_bits && takes_more_bits(layer, n_layer);
    return more ? TensorType::kQ6_K : type_.type;
  }

  std::vector<PlannedTensor> tensors;

 private:
  void add(std::string name, TensorType type, std::vector<uint64_t> ne, float sigma, float mean) {
    PlannedTensor tensor{std::move(name), type, std::move(ne), sigma, mean};
    tensor.n_weights = 1;
    for (const uint64_t n : tensor.ne) tensor.n_weights *= n;
    const BlockType& block = block_type(type);
    tensor.bytes = tensor.n_weights / block.block_size * block.block_bytes;
    tensors.push_back(std::move(tensor));
  }

  FileType type_;
  bool pure_;
};

// Decays between a half and nearly one: exp(softplus(dt + bias) * a).
constexpr float kStepBias = -3.0f, kRate = -4.0f;

// The gated delta rule of a Qwen3.5 layer, up to its post norm's name.
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
  const uint64_t gates = s.arch == "qwen35" ? q_width : 0;  // behind each query
  plan->matrix(prefix + "attn_k.weight", {n_embd, kv_width}, plan->type(), kAttentionGain);
  if (qk_norms) plan->norm(prefix + "attn_k_norm.weight", s.head_dim, kAttentionGain);
  plan->norm(prefix + "attn_norm.weight", n_embd);
  plan->matrix(prefix + "attn_output.weight", {q_width, n_embd});
  plan->matrix(prefix + "attn_q.weight", {n_embd, q_width + gates}, plan->type(), kAttentionGain);
  if (qk_norms) plan->norm(prefix + "attn_q_norm.weight", s.head_dim, kAttentionGain);
  plan->matrix(prefix + "attn_v.weight", {n_embd, kv_width}, precious);
}

// Where the norm before the feed-forward part stands among the names.
std::string ffn_norm_name(const Shape& s) {
  if (s.arch == "qwen35") return "post_attention_norm.weight";
  return s.arch == "falcon-h1" ? "ffn_norm" : "ffn_norm.weight";
}

void plan_layer(Planner* plan, const Shape& s, uint32_t layer) {
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

}  // namespace

std::span<const Shape> shapes() {
  return kShapes;
}
std::span<const FileType> file_types() {
  return kFileTypes;
}

std::vector<PlannedTensor> plan_tensors(const Shape& shape, const FileType& type, bool pure) {
  Planner plan(type, pure);
  const bool ternary = type.type == TensorType::kTQ1_0 || type.type == TensorType::kTQ2_0;
  const TensorType embedding = ternary && !pure ? TensorType::kQ4_K : type.type;
  const std::vector<uint64_t> ne = {shape.n_embd, shape.n_vocab};
  const float sigma = embedding_sigma(shape), root = std::sqrt(static_cast<float>(shape.n_embd));
  if (!shape.tied) plan.matrix("output.weight", ne, plan.head_type(), kLogitGain);
  plan.norm("output_norm.weight", shape.n_embd, shape.tied ? kLogitGain / (sigma * root) : 1.0f);
  plan.matrix("token_embd.weight", ne, shape.tied ? plan.head_type() : embedding, sigma * root);
  for (uint32_t layer = 0; layer < shape.n_layer; ++layer) plan_layer(&plan, shape, layer);
  return std::move(plan.tensors);
}

std::vector<float> llama3_rope_factors(const Shape& shape) {
  // Llama 3.2's published rope_scaling; wavelengths between the two bounds are interpolated.
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
  writer->add(key("block_count"), shape.n_layer);
  writer->add(key("feed_forward_length"), shape.n_ff);
  writer->add(key("attention.head_count"), shape.n_head);
  writer->add(key("attention.head_count_kv"), shape.n_head_kv);
  writer->add(key("attention.layer_norm_rms_epsilon"), shape.rms_eps);
  writer->add(key("attention.key_length"), shape.head_dim);
  writer->add(key("attention.value_length"), shape.head_dim);
  writer->add(key("rope.dimension_count"), shape.n_rot > 0 ? shape.n_rot : shape.head_dim);
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
    // M-RoPE's time, height and width; of text they are all the same.
    constexpr int32_t kSections[] = {11, 11, 10, 0};
    writer->add(key("rope.dimension_sections"), std::span<const int32_t>(kSections));
  }
  if (shape.n_expert > 0) {
    writer->add(key("expert_count"), shape.n_expert);
    writer->add(key("expert_used_count"), shape.n_expert_used);
    if (shape.n_ff_expert > 0) writer->add(key("expert_feed_forward_length"), shape.n_ff_expert);
  }
}

}  // namespace sluice::tools
