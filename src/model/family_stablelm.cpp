// StableLM 2 (https://arxiv.org/abs/2402.17834): LayerNorm, partial RoPE, SwiGLU; the 12B model
// norms each head of Q and K and runs attention and FFN side by side on one norm.
#include "model/builder.h"

namespace sluice::model {

void build_stablelm(Builder& b) {
  const HParams& hp = b.hp();
  AttentionSpec attention;
  attention.rope = b.add_rope(hp.rope);

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const bool parallel = !b.has(layer, "ffn_norm");
    attention.qk_layer_norm = b.has(layer, "attn_q_norm");
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kLayer, "attn_norm");
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true);
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    if (!parallel) b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kLayer, "ffn_norm");
    b.gated_ffn(layer, Buf::kH, Buf::kX, Activation::kSiluMul, true);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head(NormKind::kLayer);
}

}  // namespace sluice::model
