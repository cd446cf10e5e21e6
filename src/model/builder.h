// Builds programs: each call appends one operation, or a part of a layer that families share. It
// looks up tensors by their GGUF names, checks their shapes, and adds the marks that `sluice dump`
// prints under llama.cpp's checkpoint names. The first error is kept; later calls do nothing.
#pragma once

#include <initializer_list>
#include <string>

#include "model/program.h"

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

// Columns of a buffer: groups of values from `col` on, `step` apart (0: all read the same group).
struct Columns {
  Buf buf;
  int64_t col = 0, step = 0;
  [[nodiscard]] Place place() const { return {buf, static_cast<int32_t>(col)}; }
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

class Builder {
 public:
  Builder(const gguf::Header& header, Program& program) : header_(header), p(program) {}

  const HParams& hp() const { return p.hp; }
  [[nodiscard]] const Status& status() const { return status_; }

  // --- tensors; names without the "blk.N." and ".weight" ----------------------------------------
  [[nodiscard]] bool has(int64_t layer, const char* name, const char* suffix = ".weight") const;
  // Rows of a matrix, capped; 0 if it is absent (looking it up reports the error).
  [[nodiscard]] int64_t rows_of(int64_t layer, const char* name) const;
  // A matrix [rows][cols]. If it is `optional` and absent, -1.
  int32_t mat(int64_t layer, const char* name, int64_t rows, int64_t cols, bool optional = false);
  // A small tensor. `suffix` may be ".bias" or ".scale" instead of ".weight".
  int32_t vec(int64_t layer, const char* name, int64_t n, bool optional = false,
              const char* suffix = ".weight", float add = 0);

  // The first row of a small tensor whose rows have n_embd values.
  int32_t first_row(const char* name);
  // Rows [first, first + rows) of a matrix [all_rows][cols].
  int32_t mat_rows(int64_t layer, const char* name, int64_t all_rows, int64_t cols, int64_t first,
                   int64_t rows);
  // A tensor with rows of `columns` values in the file, [columns][n / columns] in memory.
  int32_t vec_transposed(int64_t layer, const char* name, int64_t n, int64_t columns,
                         const char* suffix = ".weight");

  // Layers from `first` on have names "<prefix>blk.<layer - first>...".
  void name_layers(const char* prefix, int64_t first) {
    prefix_ = prefix;
    first_layer_ = first;
  }

  // --- single operations ------------------------------------------------------------------------
  void embed(float scale, int32_t positions = -1, int32_t types = -1);
  // RMS norm or LayerNorm over n values (0: n_embd), by tensor name; uses the bias if present. No
  // name: without weights.
  void norm(int64_t layer, const char* name, Buf in, Buf out, NormKind kind = NormKind::kRms,
            const char* mark = nullptr, int64_t n = 0);
  Op& matmul(int64_t layer, Buf in, Buf out, std::initializer_list<MatPart> parts, bool add = false,
             float scale = 1);
  Op& add(int64_t layer, Buf in, Buf out, float scale = 1);
  void scale(int64_t layer, Buf in, Buf out, int64_t n, float by);
  // RMS norm of `heads` groups of n values; no name: without weights.
  Op& norm_at(int64_t layer, const char* name, Columns in, Columns out, int64_t n,
              int64_t heads = 1);
  void copy(int64_t layer, Columns in, Columns out, int64_t n, int64_t heads = 1);
  // Multiplies each group of `cols` values by its own one of the tensor's `heads` [rows][cols].
  void head_matmul(int64_t layer, const char* name, Columns in, Columns out, int64_t rows,
                   int64_t cols, int64_t heads);
  // From here on only rows whose logits are wanted, n values of kX. Call once, after the last layer
  // that stores anything of the other rows; otherwise head() does it.
  void select(int64_t n);
  // Appends an operation with these fields over n values per row. The next call invalidates the
  // reference.
  Op& op(int64_t layer, Buf in, Buf out, int64_t n, const OpFields& fields);
  Op& op(int64_t layer, Place in, Place out, int64_t n, const OpFields& fields);
  Op& last() { return p.ops.back(); }
  // Reserves `values` floats of the layer's state for the next operation.
  [[nodiscard]] Carried carry(int64_t layer, int64_t values) const;
  int32_t add_recurrence(const Recurrence& recurrence);
  // Makes a buffer at least `width` values wide.
  void widen(Buf buf, int64_t width);
  void mark(const char* name, const char* kind, int64_t layer, Buf buf, int64_t col, int64_t ne0,
            int64_t ne1 = 1, MarkPart part = MarkPart::kValue);
  // `factors`: use the tensors of RoPE factors, if present.
  int32_t add_rope(const RopeHParams& rope, bool factors = true);
  // A table [n_vocab][cols] of which each token reads one row, `part` values at a time. Returns its
  // index.
  int32_t add_table(const char* name, int64_t cols, int64_t part);

  // --- parts of layers that families share ------------------------------------------------------
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
  // Sets what logits are divided by, if the family fixes it.
  void set_logit_scale(float scale) { p.hp.scales.logit = scale; }
  // Final norm of the wanted rows, output head (tied if absent), scale and soft cap.
  void head(NormKind kind = NormKind::kRms, const char* norm_name = "output_norm");
  // For a model without logits: the final norm, unless kH already is the result.
  void no_head(const char* norm_name = nullptr, NormKind kind = NormKind::kLayer);
  // What follows pooling: dense layers and a ranking head, if present.
  void tails();

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

 private:
  void enter(int64_t layer);
  [[nodiscard]] std::string full_name(int64_t layer, const char* name, const char* suffix) const;
  void embed_tokens(float scale, int32_t positions = -1, int32_t types = -1);
  int32_t add_mat(const gguf::Tensor& tensor, int64_t first_row, int64_t rows, int64_t layer,
                  bool expert);
  // The tensor of a matrix whose type has a kernel; null if absent or wrong, after fail().
  const gguf::Tensor* matrix(int64_t layer, const char* name, int64_t rows, int64_t cols,
                             bool optional);
  // Rows [first, first + rows) of each expert's `of` rows, by expert. `one` is the name in the
  // older format, with one tensor per expert.
  std::vector<int32_t> experts(int64_t layer, const char* name, const char* one, int64_t first,
                               int64_t rows, int64_t of, int64_t cols, int64_t n_expert);
  [[nodiscard]] const gguf::Tensor* tensor(int64_t layer, const char* name,
                                           const char* suffix) const;
  [[nodiscard]] AttentionShape attention_shape(int64_t layer, const AttentionSpec& spec) const;
  void qkv(int64_t layer, const AttentionSpec& spec, const AttentionShape& att);
  void gated_query(int64_t layer, const AttentionShape& att);
  void qk_norms(int64_t layer, const AttentionSpec& spec, const AttentionShape& att);
  void dense_tail();
  void rank_tail();
  void activate(int64_t layer, Activation act, int64_t n_ff);
  [[nodiscard]] int32_t factor(const MatPart& part);
  void temperature(int64_t layer, const AttentionShape& att);
  void rotate(int64_t layer, int32_t rope, const AttentionShape& att, int64_t col = 0);
  void attend(int64_t layer, const AttentionSpec& spec, const AttentionShape& att,
              int64_t rope_col = 0);
  void absorbed_attention(int64_t layer, int32_t rope);
  void expanded_attention(int64_t layer, int32_t rope);
  void latent_queries(int64_t layer, Buf out, int64_t dk);
  void expert_matrices(int64_t layer, Moe& moe, const char* kind, int64_t n_expert);
  void shared_expert(int64_t layer, Buf out, const MoeSpec& spec);

  const gguf::Header& header_;
  Program& p;
  Status status_;
  const char* prefix_ = "";  // of layer names
  int64_t first_layer_ = 0;
  int64_t att_width_ = 0;    // output width of the last attention
  int64_t n_head_mats_ = 0;  // in all layers
  bool selected_ = false;
  int64_t layer_ = -1;  // the current layer
  struct {              // sizes of the program's lists before a skipped layer
    size_t ops, mats, vecs, moes, by_head, marks;
  } before_{};
};

}  // namespace sluice::model
