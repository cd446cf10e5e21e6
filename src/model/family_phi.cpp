// Phi-2 (attention and FFN side by side on one LayerNorm, partial RoPE, biases) and Phi-3
// (https://arxiv.org/abs/2404.14219: fused QKV and gate|up, LongRoPE). The sliding window that
// Phi-3 files carry is not applied: their converters write it for models that were trained without
// one, so the reference implementation ignores it too.
#include "model/builder.h"

namespace sluice::model {

void build_phi2(Builder& b) {
  const HParams& hp = b.hp();
  AttentionSpec attention;
  attention.rope = b.add_rope(hp.rope);

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kLayer, "attn_norm");
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true);
    b.plain_ffn(layer, Buf::kX, true);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head(NormKind::kLayer);
}

void build_phi3(Builder& b) {
  const HParams& hp = b.hp();
  AttentionSpec attention;
  attention.rope = b.add_rope(hp.rope);

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true);
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    b.gated_ffn(layer, Buf::kH, Buf::kX, Activation::kSiluMul, true);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head();
}

}  // namespace sluice::model
