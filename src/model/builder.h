// The vocabulary in which families are written: each call appends one operation or one shared part
// of a transformer layer, looks its tensors up by GGUF's names, checks their shapes, and leaves the
// marks that `sluice dump` prints under llama.cpp's checkpoint names. The first error sticks.
#pragma once

#include <initializer_list>
#include <string>

#include "model/program.h"

namespace sluice::model {

// Options of the attention block, per layer.
struct AttentionSpec {
  int32_t rope = 0;      // index from add_rope; -1: no rotation
  int32_t window = 0;    // sliding window, 0: none
  bool qk_norm = false;  // RMS norm of each head of queries and keys before RoPE: attn_{q,k}_norm
  bool qk_norm_wide = false;     // the same over the full width (OLMo 2)
  bool qk_layer_norm = false;    // LayerNorm with weights by head (StableLM 2), or wide (MPT)
  bool sinks = false;            // attn_sinks: a score of each head that has no value
  float alibi = 0;               // greatest bias of ALiBi, 0: none
  bool norm_after_rope = false;  // qk_norm comes after RoPE; without qk_norm: one without weights
  bool qk_norm_by_head = false;  // RMS norm with weights by head (PLaMo 2)
  bool gated = false;  // attn_q has a gate behind each query; its sigmoid multiplies the head
  bool keys_as_values = false;  // before any norm, where there is no attn_v
  bool v_norm = false;          // RMS norm of each value head, without weights
  bool temperature = true;      // where the model has one
  bool chunked = false;         // the window is cut at its multiples
  int64_t dk = 0, dv = 0;       // of this layer's heads; 0: the model's
  int32_t cache = -1;           // the layer whose keys and values are read; -1: its own
  bool whole = false;           // all of a text is seen, though the model is causal
  int32_t relative = -1, relative_bias = -1;  // AttentionOp's
};

// A place in the rows of a buffer: groups of values from `col`, `step` apart (0: the same for all).
struct Columns {
  Buf buf;
  int64_t col = 0, step = 0;
  [[nodiscard]] Place place() const { return {buf, static_cast<int32_t>(col)}; }
};

// Options of a mixture of experts. Builder::moe_spec gives what the metadata says; families change
// what theirs fix. Biases, factors, the selection bias, fused gate|up, shared experts and their
// gate are there where their tensors are, and so are the mixtures themselves: in the layers that
// have ffn_gate_inp.
struct MoeSpec {
  Gating gating = Gating::kSoftmax;
  bool normalize = true;     // a token's weights are divided by their sum
  float weights_scale = 1;   // and then multiplied by this
  bool weigh_input = false;  // weights multiply what experts read, not what they give (Llama 4)
  Activation act = Activation::kSiluMul;
  Buf in = Buf::kH;            // what experts and shared experts read, [n_embd]
  Buf router_in = Buf::kH;     // what the router reads, [n_embd]
  bool routed = false;         // the router's logits are in kRouter already, by route()
  const char* kind = "_exps";  // ending of the experts' tensors
  int64_t n_ff = 0;            // of an expert; 0: the model's
  int64_t shared_by = 1;       // experts of the router that stand for one of these
  bool add = true;             // to the output, which is written over otherwise
  float scale = 1;             // of what is added
};

class Builder {
 public:
  Builder(const gguf::Header& header, Program& program) : header_(header), p(program) {}

  const HParams& hp() const { return p.hp; }
  [[nodiscard]] const Status& status() const { return status_; }

  // --- tensors; names without the "blk.N." and ".weight" ----------------------------------------
  [[nodiscard]] bool has(int64_t layer, const char* name, const char* suffix = ".weight") const;
  // Rows of a matrix, capped; 0 when it is absent (the error is noted when it is looked up).
  [[nodiscard]] int64_t rows_of(int64_t layer, const char* name) const;
  // A matrix [rows][cols]. `optional` gives -1 for an absent one.
  int32_t mat(int64_t layer, const char* name, int64_t rows, int64_t cols, bool optional = false);
  // `suffix` may name another part than the weights: ".bias", ".scale".
  int32_t vec(int64_t layer, const char* name, int64_t n, bool optional = false,
              const char* suffix = ".weight", float add = 0);

  // The first row of a small tensor of rows of n_embd values.
  int32_t first_row(const char* name);
  // Rows [first, first + rows) of a matrix [all_rows][cols].
  int32_t mat_rows(int64_t layer, const char* name, int64_t all_rows, int64_t cols, int64_t first,
                   int64_t rows);
  // Rows of `columns` values in the file, [columns][n / columns] in memory.
  int32_t vec_transposed(int64_t layer, const char* name, int64_t n, int64_t columns,
                         const char* suffix = ".weight");

  // Layers from `first` on have names "<prefix>blk.<layer - first>...".
  void name_layers(const char* prefix, int64_t first) {
    prefix_ = prefix;
    first_layer_ = first;
  }

  // --- single operations
  // ---------------------------------------------------------------------------
  void embed(float scale, int32_t positions = -1, int32_t types = -1);
  // RMS norm or LayerNorm over n values (0: n_embd), by tensor name (bias used when present); no
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
  // Each group of `cols` values times its own of the tensor's `heads` matrices [rows][cols].
  void head_matmul(int64_t layer, const char* name, Columns in, Columns out, int64_t rows,
                   int64_t cols, int64_t heads);
  // From here on only rows whose logits are wanted, n values of kX: once, where no later layer
  // keeps anything of the others; head() does it otherwise.
  void select(int64_t n);
  // The operation that the fields are of, over n values of rows; the next one moves it.
  Op& op(int64_t layer, Buf in, Buf out, int64_t n, const OpFields& fields);
  Op& op(int64_t layer, Place in, Place out, int64_t n, const OpFields& fields);
  Op& last() { return p.ops.back(); }
  // Room for `values` of its layer's state that the next operation carries from token to token.
  [[nodiscard]] Carried carry(int64_t layer, int64_t values) const;
  int32_t add_recurrence(const Recurrence& recurrence);
  // Makes room for `width` values of each token.
  void widen(Buf buf, int64_t width);
  void mark(const char* name, const char* kind, int64_t layer, Buf buf, int64_t col, int64_t ne0,
            int64_t ne1 = 1, MarkPart part = MarkPart::kValue);
  // `factors`: with the tensors of factors, where there are any.
  int32_t add_rope(const RopeHParams& rope, bool factors = true);
  // A table [n_vocab][cols] of which each token reads a row, by parts of `part` values; its number.
  int32_t add_table(const char* name, int64_t cols, int64_t part);

  // --- shared parts of layers
  // ------------------------------------------------------------------------ kH -> Q, K, V (fused
  // or apart, biases as present), norms, RoPE, attention -> kAtt.
  void attention(int64_t layer, const AttentionSpec& spec);
  // Replaces the score scale of the attention just added.
  void set_score_scale(float scale) { last().as<AttentionOp>().scale = scale; }
  // kH -> kAtt, or kGateUp: latent attention (MLA), whose keys and values are made of one short
  // vector. Returns where its output is. `rope`: -1 for none.
  Buf latent_attention(int64_t layer, int32_t rope, float score_scale);
  // Attention of a decoder's tokens to their source: keys and values of the source, kH -> the
  // layer's cache; then kH -> kAtt.
  void store_source(int64_t layer);
  void cross_attention(int64_t layer);
  // From here on the operations are the decoder's: they begin with the embedding of its tokens.
  void begin_decoder();
  // Scores are the products themselves.
  void unscaled_scores() {
    if (p.hp.attn_scale == 0) p.hp.attn_scale = 1;
  }
  // Buckets of distances for AttentionOp::relative, whose number it returns.
  int32_t add_buckets(bool both_ways);
  // kAtt -> out, through attn_output: out += scale * (W att + b), or = without `add`. What is
  // before it is normed where there is an attn_sub_norm, in the FFN an ffn_sub_norm (BitNet).
  void attention_output(int64_t layer, Buf out, bool add, float scale = 1, Buf in = Buf::kAtt);
  // kH -> out: gated FFN (gate, up, down; fused gate|up when only a double-width up exists).
  void gated_ffn(int64_t layer, Buf in, Buf out, Activation act, bool add, float scale = 1);
  // in -> out: up, activation, down, biases as present.
  void plain_ffn(int64_t layer, Buf in, Buf out, Activation act, bool add, float scale = 1);
  // The options that the metadata gives, with the family's own gating and normalization where it
  // gives none.
  [[nodiscard]] MoeSpec moe_spec(Gating gating = Gating::kSoftmax, bool normalize = true) const;
  [[nodiscard]] bool has_experts(int64_t layer) const { return has(layer, "ffn_gate_inp"); }
  // The router: spec.router_in -> kRouter. For families whose router reads what is gone when the
  // experts run; spec.routed is then true for moe_ffn.
  void route(int64_t layer, const MoeSpec& spec);
  // spec.in -> out += scale * (mixture of experts, and the shared expert where there is one), or =
  // without spec.add.
  void moe_ffn(int64_t layer, Buf out, const MoeSpec& spec);
  // What logits are divided by, where the family fixes it.
  void set_logit_scale(float scale) { p.hp.logit_scale = scale; }
  // Final norm of the wanted rows, output head (tied when absent), scale and soft cap.
  void head(NormKind kind = NormKind::kRms, const char* norm_name = "output_norm");
  // Of a model that gives embeddings alone: the final norm, where kH is not the result already.
  void no_head(const char* norm_name = nullptr, NormKind kind = NormKind::kLayer);
  // What follows pooling: dense layers, a ranking head, as present.
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
  // The tensor of a matrix that has a kernel, checked; null when absent or wrong, which is noted.
  const gguf::Tensor* matrix(int64_t layer, const char* name, int64_t rows, int64_t cols,
                             bool optional);
  // Rows [first, first + rows) of each expert's `of` rows, by expert; `one` names the older form,
  // a tensor for each expert.
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
  const char* prefix_ = "";  // of layers' names
  int64_t first_layer_ = 0;
  int64_t att_width_ = 0;    // of the attention just added
  int64_t n_head_mats_ = 0;  // of all layers
  bool selected_ = false;
  int64_t layer_ = -1;  // that something was added to last
  struct {              // entries of the program before that layer's, where it is skipped
    size_t ops, mats, vecs, moes, by_head, marks;
  } before_{};
};

}  // namespace sluice::model
