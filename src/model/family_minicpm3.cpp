// MiniCPM 3 (https://arxiv.org/abs/2404.06395): latent attention with LongRoPE factors on its
// rotated part. The architecture fixes the scales of the embedding, the residual stream and the
// logits.
#include <cmath>

#include "model/builder.h"

namespace sluice::model {

void build_minicpm3(Builder& b) {
  const HParams& hp = b.hp();
  constexpr float kEmbeddingScale = 12, kDepthScale = 1.4f, kBaseWidth = 256;
  RopeHParams rotary = hp.rope;
  if (b.has(-1, "rope_factors_long")) rotary.scaling = RopeScaling::kLongRope;
  const int32_t rope = b.add_rope(rotary);
  const float residual = kDepthScale / std::sqrt(static_cast<float>(hp.n_layer));
  const float scores =
      static_cast<float>(1 / std::sqrt(static_cast<double>(hp.attention.head_dim_k)));

  b.embed(kEmbeddingScale);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    const Buf attended = b.latent_attention(layer, rope, scores);
    b.attention_output(layer, Buf::kX, true, residual, attended);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    b.gated_ffn(layer, Buf::kH, Buf::kX, Activation::kSiluMul, true, residual);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.set_logit_scale(static_cast<float>(hp.n_embd) / kBaseWidth);
  b.head();
}

}  // namespace sluice::model
