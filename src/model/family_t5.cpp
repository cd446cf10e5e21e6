// T5 (https://arxiv.org/abs/1910.10683): an encoder-decoder. Positions are relative biases of the
// scores, scores are not scaled, norms have no bias. The later version (2002.05202; FLAN) has a
// gated GELU instead of ReLU. t5encoder is the encoder without a decoder, for embeddings.
#include "model/builder.h"

namespace sluice::model {
namespace {

// A stack of layers, encoder or decoder.
class Stack {
 public:
  Stack(Builder& b, const char* prefix, int64_t first, bool both_ways)
      : b_(b), first_(first), buckets_(b.add_buckets(both_ways)) {
    b.name_layers(prefix, first);
  }

  void attention(int64_t layer, AttentionSpec spec) {
    const int64_t heads = b_.hp().attention.n_head;
    // In most files only the first layer has the biases, which all layers share.
    if (layer == first_ || b_.has(layer, "attn_rel_b")) {
      bias_ = b_.vec(layer, "attn_rel_b", heads * b_.hp().attention.n_relative_buckets);
    }
    spec.rope = -1;
    spec.relative = buckets_;
    spec.relative_bias = bias_;
    b_.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    b_.attention(layer, spec);
    output(layer, "attn_o");
  }
  // kX += output projection of kAtt.
  void output(int64_t layer, const char* name) {
    const HParams& hp = b_.hp();
    const int32_t w = b_.mat(layer, name, hp.n_embd, hp.attention.n_head * hp.attention.head_dim_v);
    b_.matmul(layer, Buf::kAtt, Buf::kX, {{w, -1, 0}}, true);
  }
  void feed_forward(int64_t layer) {
    b_.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    if (b_.has(layer, "ffn_gate")) {
      b_.gated_ffn(layer, Buf::kH, Buf::kX, Activation::kGeluMul, true);
    } else {
      b_.plain_ffn(layer, Buf::kH, Buf::kX, Activation::kRelu, true);
    }
  }

 private:
  Builder& b_;
  int64_t first_;
  int32_t buckets_;
  int32_t bias_ = -1;
};

}  // namespace

void build_t5(Builder& b) {
  const HParams& hp = b.hp();
  if (hp.attention.n_head_kv != hp.attention.n_head || !hp.attention.n_head_of.empty() ||
      !hp.attention.n_head_kv_of.empty() || !hp.ffn.n_ff_of.empty()) {
    b.fail(error(Code::kUnsupportedArchitecture,
                 "grouped-query attention and sizes that vary by layer are not supported for "
                 "\"%s\"",
                 hp.arch.c_str()));
    return;
  }
  b.unscaled_scores();
  const int64_t n_encoder = hp.attention.causal ? hp.encoder.n_layer : hp.n_layer;
  b.embed(1);
  AttentionSpec whole;
  whole.whole = true;
  // Encoder layers use the cache of the decoder's first layer, which overwrites it afterwards.
  whole.cache = hp.attention.causal ? static_cast<int32_t>(n_encoder) : 0;
  Stack encoder(b, "enc.", 0, true);
  for (int64_t layer = 0; layer < n_encoder; ++layer) {
    encoder.attention(layer, whole);
    encoder.feed_forward(layer);
  }
  b.no_head("enc.output_norm", NormKind::kRms);
  if (!hp.attention.causal) return;

  Stack decoder(b, "dec.", n_encoder, false);
  for (int64_t layer = n_encoder; layer < hp.n_layer; ++layer) b.store_source(layer);
  b.begin_decoder();
  for (int64_t layer = n_encoder; layer < hp.n_layer; ++layer) {
    decoder.attention(layer, {});
    b.norm(layer, "cross_attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "cross_attn_norm");
    b.cross_attention(layer);
    decoder.output(layer, "cross_attn_o");
    decoder.feed_forward(layer);
  }
  b.head(NormKind::kRms, "dec.output_norm");
}

}  // namespace sluice::model
