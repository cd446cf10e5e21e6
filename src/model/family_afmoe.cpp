// Trinity (AFMoE): norms before and after each block, embeddings scaled by sqrt(n_embd), attention
// with a sigmoid gate on its output, local layers with RoPE, and every fourth layer global without
// RoPE.
#include <cmath>

#include "model/builder.h"

namespace sluice::model {
namespace {

// The gate has the same input as attention; it is kept in kGateUp until attention is done.
void gated_attention(Builder& b, int64_t layer, const AttentionSpec& attention) {
  const HParams& hp = b.hp();
  const int64_t width = hp.attention.n_head * hp.attention.head_dim_v;
  const int32_t gate = b.mat(layer, "attn_gate", width, hp.n_embd);
  b.matmul(layer, Buf::kH, Buf::kGateUp, {{gate, -1, 0}});
  b.attention(layer, attention);
  b.op(layer, Buf::kGateUp, Buf::kAtt, width, GateOp{static_cast<int32_t>(width)});
  b.attention_output(layer, Buf::kT, false);
}

}  // namespace

void build_afmoe(Builder& b) {
  const HParams& hp = b.hp();
  const int64_t period = hp.window.pattern > 0 ? hp.window.pattern : 4;
  const int32_t rope = b.add_rope(hp.rope);
  MoeSpec moe = b.moe_spec(Gating::kSigmoid, false);
  moe.add = false;

  b.embed(std::sqrt(static_cast<float>(hp.n_embd)));
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const bool global = (layer + 1) % period == 0;
    AttentionSpec attention;
    attention.rope = global ? -1 : rope;
    attention.window = global ? 0 : static_cast<int32_t>(hp.window.size);
    attention.qk_norm = true;
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    gated_attention(b, layer, attention);
    b.norm(layer, "post_attention_norm", Buf::kT, Buf::kT, NormKind::kRms, "attn_post_norm");
    b.add(layer, Buf::kT, Buf::kX);
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    if (b.has_experts(layer)) {
      b.moe_ffn(layer, Buf::kT, moe);
    } else {
      b.gated_ffn(layer, Buf::kH, Buf::kT, Activation::kSiluMul, false);
    }
    b.norm(layer, "post_ffw_norm", Buf::kT, Buf::kT, NormKind::kRms, "ffn_post_norm");
    b.add(layer, Buf::kT, Buf::kX);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head();
}

}  // namespace sluice::model
