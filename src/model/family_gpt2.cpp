// GPT-2 (learned positions, LayerNorm, GELU, biases everywhere) and StarCoder2
// (https://arxiv.org/abs/2402.19173), which is the same block with RoPE and grouped heads.
#include "model/builder.h"

namespace sluice::model {
namespace {

void build_layernorm_transformer(Builder& b, int32_t positions, int32_t rope) {
  const HParams& hp = b.hp();
  AttentionSpec attention;
  attention.rope = rope;
  b.embed(1, positions);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kLayer, "attn_norm");
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true);
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kLayer, "ffn_norm");
    b.plain_ffn(layer, Buf::kX, true);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head(NormKind::kLayer);
}

}  // namespace

void build_gpt2(Builder& b) {
  const HParams& hp = b.hp();
  build_layernorm_transformer(b, b.vec(-1, "position_embd", hp.n_ctx_train * hp.n_embd), -1);
}

void build_starcoder2(Builder& b) {
  build_layernorm_transformer(b, -1, b.add_rope(b.hp().rope));
}

}  // namespace sluice::model
