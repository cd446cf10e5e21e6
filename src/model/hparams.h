// Hyperparameters from the metadata. Sizes are capped and checked against each other here, and
// against the tensors when the program is built.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md ("[arch].embedding_length", ...)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"

namespace sluice::model {

inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxWidth = 1 << 20;  // n_embd, n_ff, head_dim * n_head
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxVocab = 1 << 22;
inline constexpr int64_t kMaxExperts = 4096;          // per layer
inline constexpr int64_t kMaxExpertsInAll = 1 << 17;  // in all layers
inline constexpr int64_t kMaxContext = 1 << 24;
inline constexpr int64_t kMaxTaps = 64;        // of a convolution
inline constexpr int64_t kMaxState = 1 << 12;  // of a recurrent channel
inline constexpr int64_t kMaxExpertGating = 3;
inline constexpr int64_t kMaxHeadMats = 1 << 16;  // in all layers
inline constexpr int64_t kMaxRelativeBuckets = 256;
inline constexpr int64_t kMaxStreams = 8;              // of AltUp
inline constexpr int64_t kMaxPerLayerWidth = 1 << 24;  // a token's per-layer embeddings, all layers

// How an input's rows become one embedding; the values of <family>.pooling_type.
enum class Pooling : uint8_t { kNone = 0, kMean = 1, kCls = 2, kLast = 3, kRank = 4 };

enum class RopeScaling : uint8_t { kNone, kLinear, kYarn, kLongRope };

struct RopeHParams {
  bool disabled = false;
  int32_t n_rot = 0;  // rotated values per head, even
  bool neox = false;  // pairs (i, i + n_rot/2) instead of (2i, 2i+1)
  float freq_base = 10000.0f;
  float freq_scale = 1.0f;  // 1 / factor; multiplies positions
  RopeScaling scaling = RopeScaling::kNone;
  int64_t n_ctx_orig = 0;  // training context before scaling
  float attn_factor = 1.0f;
  float beta_fast = 32.0f, beta_slow = 1.0f;
  float log_multiplier = 0;  // YaRN: the attention factor is divided by the one this implies
  // M-RoPE (https://arxiv.org/abs/2409.12191): how many pairs rotate by a token's time, row and
  // column, one after another, or in turns (Qwen 3). 0: all by its position.
  std::array<int32_t, 3> sections{};
  bool in_turns = false;
};

// Recurrent layers; 0: not in the metadata.
struct RecurrentHParams {
  int64_t conv_kernel = 0;         // taps
  int64_t inner = 0;               // channels
  int64_t state = 0;               // state values per channel; delta rule: values per key head
  int64_t rank = 0;                // rank of Mamba's time step; in other families, heads
  int64_t groups = 0;              // heads of a group share keys
  bool norms = false;              // norms without weights on Mamba's time step, B and C
  int64_t attention_interval = 0;  // one layer of so many has attention
  int64_t head_size = 0;           // of RWKV and KDA
  int64_t short_conv_kernel = 0;   // taps of LFM2's convolutions
  int64_t rescale_interval = 0;    // RWKV 6 halves the residual stream every so many layers
};

struct AttentionHParams {
  int64_t n_head = 0, n_head_kv = 0;  // the largest of all layers
  std::vector<int64_t> n_head_of;     // by layer, if it varies
  std::vector<int64_t> n_head_kv_of;  // by layer, if it varies (0: the layer has no attention)
  int64_t head_dim_k = 0, head_dim_v = 0;
  float scale = 0;  // 0: 1/sqrt(head_dim_k)
  float softcap = 0;
  float clamp_qkv = 0;  // clamp queries, keys and values to [-clamp_qkv, clamp_qkv]; 0: no clamp
  bool causal = true;   // false: every position sees the whole input
  float alibi = -1;     // ALiBi's largest bias; 0: none, -1: the family's default
  int64_t n_relative_buckets = 0;  // relative position buckets
  int64_t n_layer_kv = 0;          // layers with a KV cache of their own; later ones share theirs
};

// Multi-head latent attention.
struct MlaHParams {
  int64_t q_lora_rank = 0, kv_lora_rank = 0;
  int64_t head_dim_k = 0, head_dim_v = 0;  // head sizes if the cache holds the latent vector
};

// Queries at position p are multiplied by 1 + scale * log(1 + (p + offset) / length), with the
// quotient rounded down.
struct TemperatureHParams {
  float scale = 0;
  int64_t length = 1;
  int64_t offset = 0;
};

// Layers with sliding-window attention.
struct WindowHParams {
  int64_t size = 0;                        // 0: none
  int64_t pattern = 0;                     // 0: the family's default
  std::vector<uint8_t> local_layers;       // by layer, if windows follow no simple period
  std::vector<uint8_t> local_of;           // by layer, if the metadata lists them
  int64_t head_dim_k = 0, head_dim_v = 0;  // 0: as other layers
  int64_t n_rot = 0;
  float freq_base = 10000.0f;
};

struct FfnHParams {
  int64_t n_ff = 0;               // the largest of all layers
  std::vector<int64_t> n_ff_of;   // by layer, if it varies
  std::vector<float> sparsity;    // by layer: threshold, in deviations above the mean; -inf: none
  std::string hidden_activation;  // if the family lets the file choose
  std::vector<kernels::Xielu> xielu;  // by layer; Apertus only
};

// Mixture of experts.
struct MoeHParams {
  int64_t n_expert = 0, n_expert_used = 0, n_ff_expert = 0;
  float weights_scale = 0;
  int64_t weights_norm = -1;  // 0 or 1; -1: the family's default
  int64_t gating = 0;         // expert_gating_func: 1 softmax, 2 sigmoid, 3 softmax over the
                              // chosen experts; 0: the family's default
  int64_t n_group = 1, n_group_used = 1;
  // GroveMoE: a smaller expert per group of experts, and the scale of its output.
  int64_t n_expert_of_group = 1, n_ff_group = 0;
  float group_scale = 1;
};

struct NormHParams {
  float eps = 1e-5f;
  float offset = 0;  // added to norm weights (checkpoints that store w - 1)
};

struct ScaleHParams {
  float embedding = 1, residual = 1, logit = 1;
  float logit_softcap = 0;
};

struct MediaHParams {
  bool sees_all = false;    // a picture's tokens see each other in layers without a window too
  int64_t n_deepstack = 0;  // layers behind which a picture's further values are added
};

// AltUp of Gemma 3n.
struct AltupHParams {
  int64_t n_streams = 0, active = 0;  // the streams; the one that layers compute
};

// Encoder-decoder models.
struct EncoderHParams {
  int64_t n_layer = 0;        // the encoder's, which come first in HParams::n_layer; 0: no encoder
  int32_t decoder_start = 0;  // the token that every decoder input begins with
};

struct HParams {
  std::string arch;
  std::string name;
  uint64_t metadata_hash = 0;  // of the values that were read, but for the context length
  int64_t n_vocab = 0;
  int64_t n_ctx_train = 0;
  int64_t n_embd = 0;
  int64_t n_embd_per_layer = 0;  // width of the per-layer embeddings, 0: none
  int64_t n_layer = 0;
  int64_t n_layer_nextn = 0;      // further MTP layers after these: nextn.h
  bool parallel_residual = true;  // if the family lets the file choose
  Pooling pooling = Pooling::kNone;
  NormHParams norm;
  ScaleHParams scales;
  AttentionHParams attention;
  MlaHParams mla;
  TemperatureHParams temperature;
  WindowHParams window;
  RopeHParams rope;
  FfnHParams ffn;
  MoeHParams moe;
  RecurrentHParams recurrent;
  AltupHParams altup;
  EncoderHParams encoder;
  MediaHParams media;

  [[nodiscard]] int64_t heads(int64_t layer) const {
    return of(attention.n_head_of, layer, attention.n_head);
  }
  [[nodiscard]] int64_t kv_heads(int64_t layer) const {
    return of(attention.n_head_kv_of, layer, attention.n_head_kv);
  }
  [[nodiscard]] int64_t ff(int64_t layer) const { return of(ffn.n_ff_of, layer, ffn.n_ff); }

 private:
  // Layers beyond the end of a list have the model's common value.
  [[nodiscard]] static int64_t of(const std::vector<int64_t>& list, int64_t layer, int64_t all) {
    const auto i = static_cast<size_t>(layer);
    return i < list.size() ? list[i] : all;
  }
};

// Errors: kBadHeader for missing or invalid values, naming the key; kUnsupportedArchitecture.
[[nodiscard]] Result<HParams> read_hparams(const gguf::Header& header);

}  // namespace sluice::model
