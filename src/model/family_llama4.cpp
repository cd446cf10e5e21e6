// Llama 4: three of four layers attend within chunks of the positions and norm queries and keys
// after RoPE. The fourth attends to all, without RoPE, and scales queries by position. Some layers
// have a mixture that weighs the experts' inputs, with a shared expert.
#include "model/builder.h"

namespace sluice::model {

void build_llama4(Builder& b) {
  const HParams& hp = b.hp();
  constexpr int64_t kRopePeriod = 4;           // every fourth layer has no RoPE
  constexpr int64_t kExpertsOfMaverick = 128;  // which has no QK norm
  const int32_t rope = b.add_rope(hp.rope);
  RopeHParams local = hp.rope;
  local.freq_base = hp.window.freq_base;
  const int32_t local_rope = b.add_rope(local);
  MoeSpec moe = b.moe_spec(Gating::kSigmoid, false);
  moe.weigh_input = true;

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const bool chunked = layer % hp.window.pattern < hp.window.pattern - 1;
    const bool rotated = (layer + 1) % kRopePeriod != 0;
    AttentionSpec attention;
    attention.rope = !rotated ? -1 : chunked ? local_rope : rope;
    attention.window = chunked ? static_cast<int32_t>(hp.window.size) : 0;
    attention.chunked = chunked;
    attention.norm_after_rope = rotated && hp.moe.n_expert != kExpertsOfMaverick;
    attention.temperature = !rotated;
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    b.ffn(layer, moe);
  }
  b.head();
}

}  // namespace sluice::model
