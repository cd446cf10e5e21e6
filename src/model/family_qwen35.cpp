// Qwen3-Next and Qwen3.5: the gated delta rule in three of four layers, gated attention with QK
// norm in the fourth. RoPE covers part of each head; M-RoPE's sections are equal for text.
// Qwen3-Next and Qwen3.5-MoE have experts.
#include "model/families.h"
#include "model/recurrent.h"

namespace sluice::model {

void build_qwen35_layer(Builder& b, int64_t layer, int32_t rope, bool attends) {
  const HParams& hp = b.hp();
  AttentionSpec attention;
  attention.rope = rope;
  attention.qk_norm = true;
  attention.gated = true;
  b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
  if (!attends) {
    gated_delta_layer(b, layer);
  } else {
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true);
  }
  b.mark("attn_residual", "ADD", layer, Buf::kX, 0, hp.n_embd);
  b.norm(layer, "post_attention_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_post_norm");
  b.ffn(layer, b.moe_spec());
}

void build_qwen35(Builder& b) {
  const HParams& hp = b.hp();
  if (hp.attention.n_head == 0) {
    b.fail(error(Code::kBadHeader, "the metadata lacks %s.attention.head_count", hp.arch.c_str()));
    return;
  }
  const int32_t rope = b.add_rope(hp.rope);
  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    build_qwen35_layer(b, layer, rope, (layer + 1) % hp.recurrent.attention_interval == 0);
  }
  b.head();
}

}  // namespace sluice::model
