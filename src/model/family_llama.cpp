// Llama (https://arxiv.org/abs/2302.13971, 2307.09288, 2407.21783) and families that differ from it
// by a constant or a condition: Mistral, Mixtral (experts, 2401.04088), SmolLM3 (no RoPE in every
// fourth layer), Granite (four scales), Seed-OSS (another name for the FFN norm), InternLM2,
// ERNIE 4.5, EXAONE, LLaDA (2502.09992), which is bidirectional, and CogVLM (2311.03079), whose
// rows of pictures have matrices of their own.
#include "model/builder.h"

namespace sluice::model {

void build_llama(Builder& b) {
  const HParams& hp = b.hp();
  const bool smollm3 = hp.arch == "smollm3";
  const char* ffn_norm = hp.arch == "seed_oss" ? "post_attention_norm" : "ffn_norm";
  const int32_t rope = hp.rope.disabled ? -1 : b.add_rope(hp.rope);
  MoeSpec moe = b.moe_spec();
  moe.scale = hp.scales.residual;

  b.embed(hp.scales.embedding);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    AttentionSpec attention;
    attention.rope = smollm3 && (layer + 1) % 4 == 0 ? -1 : rope;
    attention.window = hp.arch == "llama" ? 0 : static_cast<int32_t>(hp.window.size);
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true, hp.scales.residual);
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.norm(layer, ffn_norm, Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    b.ffn(layer, moe, hp.scales.residual);
    if (hp.arch == "cogvlm") b.media_mats(layer);
  }
  b.head();
}

}  // namespace sluice::model
