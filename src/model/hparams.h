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
  int64_t rescale_interval = 0;    // RWKV 6 halves the residual stream every so many layers
};

struct HParams {
  std::string arch;
  std::string name;
  uint64_t metadata_hash = 0;  // of the values that were read, but for the context length
  int64_t n_vocab = 0;
  int64_t n_ctx_train = 0;
  int64_t n_embd = 0;
  int64_t n_layer = 0;
  int64_t n_layer_nextn = 0;  // further MTP layers after these: nextn.h
  int64_t n_ff = 0;
  int64_t n_head = 0;
  int64_t n_head_kv = 0;
  std::vector<int64_t> n_head_kv_of;  // by layer, if it varies (0: the layer has no attention)
  int64_t head_dim_k = 0, head_dim_v = 0;
  float norm_eps = 1e-5f;
  float attn_scale = 0;  // 0: 1/sqrt(head_dim_k)
  float attn_softcap = 0, final_softcap = 0;
  float clamp_qkv = 0;  // clamp queries, keys and values to [-clamp_qkv, clamp_qkv]; 0: no clamp
  // Queries at position p are multiplied by 1 + scale * log(1 + (p + offset) / length), with the
  // quotient rounded down.
  float temperature_scale = 0;
  int64_t temperature_length = 1;
  int64_t sliding_window = 0;  // 0: none
  int64_t window_pattern = 0;  // 0: the family's default
  float freq_base_swa = 10000.0f;
  int64_t n_expert = 0, n_expert_used = 0, n_ff_expert = 0;
  float expert_weights_scale = 0;
  // GroveMoE: a smaller expert per group of experts, and the scale of its output.
  int64_t n_expert_of_group = 1, n_ff_group = 0;
  float expert_group_scale = 1;
  int64_t n_expert_group = 1, n_expert_group_used = 1;
  int64_t expert_gating = 0;         // expert_gating_func: 1 softmax, 2 sigmoid, 3 softmax over the
                                     // chosen experts; 0: the family's default
  int64_t expert_weights_norm = -1;  // 0 or 1; -1: the family's default
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  bool media_sees_all = false;  // a picture's tokens see each other in layers without a window too
  int64_t n_deepstack = 0;      // layers behind which a picture's further values are added
  float norm_offset = 0;        // added to norm weights (checkpoints that store w - 1)
  int64_t conv_kernel = 0;
  bool rope_disabled = false;
  bool causal = true;  // false: every position sees the whole input
  Pooling pooling = Pooling::kNone;
  std::vector<uint8_t> local_layers;  // by layer, if windows follow no simple period
  RopeHParams rope;
  RecurrentHParams recurrent;
  std::vector<int64_t> n_ff_of;   // by layer, if it varies; n_ff is the largest
  std::vector<uint8_t> local_of;  // by layer, if the metadata lists layers with a window
  int64_t head_dim_k_swa = 0, head_dim_v_swa = 0;  // of layers with a window; 0: as other layers
  int64_t n_rot_swa = 0;
  int64_t n_layer_kv = 0;        // layers with a KV cache of their own; later ones share theirs
  int64_t n_embd_per_layer = 0;  // width of the per-layer embeddings, 0: none
  int64_t n_altup = 0, altup_active = 0;  // AltUp's streams; the one that layers compute
  std::vector<float> ffn_sparsity;  // by layer: threshold, in deviations above the mean; -inf: none
  int64_t q_lora_rank = 0, kv_lora_rank = 0;  // latent attention
  int64_t head_dim_k_mla = 0,
          head_dim_v_mla = 0;         // head sizes if the cache holds the latent vector
  int64_t temperature_offset = 0;     // added to positions
  float alibi = -1;                   // ALiBi's largest bias; 0: none, -1: the family's default
  bool parallel_residual = true;      // if the family lets the file choose
  std::string hidden_activation;      // likewise
  std::vector<kernels::Xielu> xielu;  // by layer; Apertus only
  std::vector<int64_t> n_head_of;     // by layer, if it varies; n_head is the largest

  // Encoder-decoder models: how many of n_layer are the encoder's (they come first), 0: no encoder;
  // and the token that every decoder input begins with.
  int64_t n_layer_encoder = 0;
  int32_t decoder_start = 0;
  int64_t n_relative_buckets = 0;  // relative position buckets

  [[nodiscard]] int64_t heads(int64_t layer) const { return of(n_head_of, layer, n_head); }
  [[nodiscard]] int64_t kv_heads(int64_t layer) const { return of(n_head_kv_of, layer, n_head_kv); }
  [[nodiscard]] int64_t ff(int64_t layer) const { return of(n_ff_of, layer, n_ff); }

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
