// Qwen2 (biases on Q, K, V; https://arxiv.org/abs/2407.10671), Qwen3 (RMS norm of each query and
// key head, head size independent of the hidden size; 2505.09388), and their mixtures of experts.
// Qwen2-MoE does not normalize expert weights and has a gated shared expert. Dream (2508.15487) is
// a bidirectional Qwen2. Vision models rotate by three positions per token, equal for text.
#include "model/builder.h"

namespace sluice::model {

void build_qwen(Builder& b) {
  const HParams& hp = b.hp();
  AttentionSpec attention;
  attention.rope = b.add_rope(hp.rope);
  attention.qk_norm = hp.arch.rfind("qwen3", 0) == 0;
  const MoeSpec moe = b.moe_spec(Gating::kSoftmax, hp.arch != "qwen2moe");

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true);
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    b.ffn(layer, moe);
  }
  b.head();
}

}  // namespace sluice::model
