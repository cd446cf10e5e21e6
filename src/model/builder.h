// Builds programs from the parts of layers that families share: attention, feed-forward networks,
// mixtures of experts, the output head. A family adds what is its own as single operations
// (op_builder.h) over the file's tensors (tensor_binder.h).
#pragma once

#include "model/op_builder.h"

namespace sluice::model {

// Options of the attention block of a layer.
struct AttentionSpec {
  int32_t rope = 0;      // index from add_rope; -1: no rotation
  int32_t window = 0;    // sliding window, 0: none
  bool qk_norm = false;  // RMS norm of each head of queries and keys before RoPE: attn_{q,k}_norm
  bool qk_norm_wide = false;     // the same over the full width (OLMo 2)
  bool qk_layer_norm = false;    // LayerNorm with weights by head (StableLM 2), or wide (MPT)
  bool sinks = false;            // attn_sinks: an extra score per head, without a value
  float alibi = 0;               // ALiBi's largest bias, 0: none
  bool norm_after_rope = false;  // qk_norm comes after RoPE; alone: a norm without weights
  bool qk_norm_by_head = false;  // RMS norm with separate weights per head (PLaMo 2)
  bool gated = false;           // attn_q has a gate after each query; its sigmoid scales the output
  bool keys_as_values = false;  // if there is no attn_v, values are the keys before any norm
  bool v_norm = false;          // RMS norm of each value head, without weights
  bool temperature = true;      // scale queries by position, if the model does
  bool chunked = false;         // queries see only their own chunk of `window` positions
  int64_t dk = 0, dv = 0;       // of this layer's heads; 0: the model's
  int32_t cache = -1;           // the layer whose KV cache is read; -1: its own
  bool whole = false;           // sees the whole input, although the model is causal
  int32_t relative = -1, relative_bias = -1;  // see AttentionOp
};

// Options of a mixture of experts. Builder::moe_spec fills in what the metadata says; families set
// what they fix. Biases, factors, selection bias, fused gate|up, shared experts and their gate are
// used if their tensors are present. A layer has a mixture if it has ffn_gate_inp.
struct MoeSpec {
  Gating gating = Gating::kSoftmax;
  bool normalize = true;     // divide a token's weights by their sum
  float weights_scale = 1;   // then multiply them by this
  bool weigh_input = false;  // weights multiply the experts' inputs, not their outputs (Llama 4)
  Activation act = Activation::kSiluMul;
  Buf in = Buf::kH;            // input of experts and shared experts, [n_embd]
  Buf router_in = Buf::kH;     // input of the router, [n_embd]
  bool routed = false;         // route() has already written the router's logits to kRouter
  const char* kind = "_exps";  // suffix of the experts' tensor names
  int64_t n_ff = 0;            // of an expert; 0: the model's
  int64_t shared_by = 1;       // number of router logits that select one of these experts
  bool add = true;             // add to the output; false: overwrite it
  float scale = 1;             // of the mixture's output
};

class Builder : public OpBuilder {
 public:
  using OpBuilder::OpBuilder;

  // kH -> Q, K, V (fused or separate, with biases if present), norms, RoPE, attention -> kAtt.
  void attention(int64_t layer, const AttentionSpec& spec);
  // Replaces the score scale of the last attention.
  void set_score_scale(float scale) { last().as<AttentionOp>().scale = scale; }
  // kH -> kAtt or kGateUp: multi-head latent attention (MLA), whose keys and values come from one
  // short vector. Returns the output buffer. `rope`: -1 for none.
  Buf latent_attention(int64_t layer, int32_t rope, float score_scale);
  // Cross-attention of a decoder. store_source: keys and values of the encoder's output, kH -> the
  // layer's KV cache. cross_attention: kH -> kAtt.
  void store_source(int64_t layer);
  void cross_attention(int64_t layer);
  // The operations from here on are the decoder's; starts with the embedding of its tokens.
  void begin_decoder();
  // Attention scores are not scaled.
  void unscaled_scores() {
    if (p.hp.attention.scale == 0) p.hp.attention.scale = 1;
  }
  // Adds distance buckets for AttentionOp::relative and returns their index.
  int32_t add_buckets(bool both_ways);
  // kAtt -> out, through attn_output: out += scale * (W att + b), or = without `add`. If the file
  // has attn_sub_norm (in the FFN: ffn_sub_norm), the input is normed first (BitNet).
  void attention_output(int64_t layer, Buf out, bool add, float scale = 1, Buf in = Buf::kAtt);
  // kH -> out: gated FFN (gate, up, down; fused gate|up if only a double-width up exists).
  void gated_ffn(int64_t layer, Buf in, Buf out, Activation act, bool add, float scale = 1);
  // in -> out: up, activation, down, with biases if present.
  void plain_ffn(int64_t layer, Buf in, Buf out, Activation act, bool add, float scale = 1);
  // Options from the metadata; `gating` and `normalize` are the family's defaults.
  [[nodiscard]] MoeSpec moe_spec(Gating gating = Gating::kSoftmax, bool normalize = true) const;
  [[nodiscard]] bool has_experts(int64_t layer) const { return has(layer, "ffn_gate_inp"); }
  // The router: spec.router_in -> kRouter. For families whose router reads a buffer that is
  // overwritten before the experts run; they then call moe_ffn with spec.routed.
  void route(int64_t layer, const MoeSpec& spec);
  // spec.in -> out += scale * (mixture of experts, plus the shared expert if present), or =
  // without spec.add.
  void moe_ffn(int64_t layer, Buf out, const MoeSpec& spec);
  // The end of most layers: their experts, or a gated FFN that is multiplied by `scale`, added to
  // the residual stream.
  void ffn(int64_t layer, const MoeSpec& spec, float scale = 1);
  // Sets what logits are divided by, if the family fixes it.
  void set_logit_scale(float scale) { p.hp.scales.logit = scale; }
  // Final norm of the wanted rows, output head (tied if absent), scale and soft cap.
  void head(NormKind kind = NormKind::kRms, const char* norm_name = "output_norm");
  // For a model without logits: the final norm, unless kH already is the result.
  void no_head(const char* norm_name = nullptr, NormKind kind = NormKind::kLayer);
  // What follows pooling: dense layers and a ranking head, if present.
  void tails();

 private:
  // Rows [first, first + rows) of each expert's `of` rows, by expert. `one` is the name in the
  // older format, with one tensor per expert.
  std::vector<int32_t> experts(int64_t layer, const char* name, const char* one, int64_t first,
                               int64_t rows, int64_t of, int64_t cols, int64_t n_expert);
  [[nodiscard]] AttentionShape attention_shape(int64_t layer, const AttentionSpec& spec) const;
  void qkv(int64_t layer, const AttentionSpec& spec, const AttentionShape& att);
  void gated_query(int64_t layer, const AttentionShape& att);
  void qk_norms(int64_t layer, const AttentionSpec& spec, const AttentionShape& att);
  void dense_tail();
  void rank_tail();
  void activate(int64_t layer, Activation act, int64_t n_ff);
  void temperature(int64_t layer, const AttentionShape& att);
  void rotate(int64_t layer, int32_t rope, const AttentionShape& att, int64_t col = 0);
  void attend(int64_t layer, const AttentionSpec& spec, const AttentionShape& att,
              int64_t rope_col = 0);
  void absorbed_attention(int64_t layer, int32_t rope);
  void expanded_attention(int64_t layer, int32_t rope);
  void latent_queries(int64_t layer, Buf out, int64_t dk);
  void expert_matrices(int64_t layer, Moe& moe, const char* kind, int64_t n_expert);
  void shared_expert(int64_t layer, Buf out, const MoeSpec& spec);

  int64_t att_width_ = 0;  // output width of the last attention
};

}  // namespace sluice::model
