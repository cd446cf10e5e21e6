// OLMo 2 (https://arxiv.org/abs/2501.00656): no norm before a block, one after it; queries and keys
// are normed over their full width before they are split into heads.
#include "model/builder.h"

namespace sluice::model {

void build_olmo2(Builder& b) {
  const HParams& hp = b.hp();
  AttentionSpec attention;
  attention.rope = b.add_rope(hp.rope);
  attention.qk_norm_wide = true;

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.copy(layer, {Buf::kX}, {Buf::kH}, hp.n_embd);  // the blocks read the residual stream as it is
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kT, false);
    b.norm(layer, "post_attention_norm", Buf::kT, Buf::kT, NormKind::kRms, "attn_post_norm");
    b.add(layer, Buf::kT, Buf::kX);
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.gated_ffn(layer, Buf::kX, Buf::kT, Activation::kSiluMul, false);
    b.norm(layer, "post_ffw_norm", Buf::kT, Buf::kT, NormKind::kRms, "ffn_post_norm");
    b.add(layer, Buf::kT, Buf::kX);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head();
}

}  // namespace sluice::model
