// GLM-4 (https://arxiv.org/abs/2406.12793, and its 0414 models): norms before and after each block,
// RoPE on half of every head, gate and up in one matrix.
#include "model/builder.h"

namespace sluice::model {

void build_glm4(Builder& b) {
  const HParams& hp = b.hp();
  AttentionSpec attention;
  attention.rope = b.add_rope(hp.rope);

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kT, false);
    b.norm(layer, "post_attention_norm", Buf::kT, Buf::kT, NormKind::kRms, "attn_post_norm");
    b.add(layer, Buf::kT, Buf::kX);
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    b.gated_ffn(layer, Buf::kH, Buf::kT, Activation::kSiluMul, false);
    b.norm(layer, "post_ffw_norm", Buf::kT, Buf::kT, NormKind::kRms, "ffn_post_norm");
    b.add(layer, Buf::kT, Buf::kX);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head();
}

}  // namespace sluice::model
