// BERT (https://arxiv.org/abs/1810.04805: learned positions and token types, a LayerNorm after each
// block, GELU) and encoders that differ from it in details: Nomic (2402.01613: RoPE, SwiGLU;
// 2502.07972: experts in every other layer) and Jina v2 (2310.19923: ALiBi, a gated GELU).
// ModernBERT (2412.13663) has norms before its blocks, windows in two of three layers and a gated
// GELU. None has logits.
#include "model/builder.h"

namespace sluice::model {
namespace {

// The row of token type 0, the only type used here; the table is [types][n_embd].
int32_t first_token_type(Builder& b) {
  return b.has(-1, "token_types") ? b.first_row("token_types") : -1;
}

}  // namespace

// kH holds the normed residual stream, which each block reads.
void build_bert(Builder& b) {
  const HParams& hp = b.hp();
  const bool learned = b.has(-1, "position_embd");
  AttentionSpec attention;
  const bool nomic = hp.arch == "nomic-bert" || hp.arch == "nomic-bert-moe";
  attention.rope = nomic ? b.add_rope(hp.rope) : -1;
  if (hp.arch == "jina-bert-v2") {
    attention.alibi = 8;
    if (b.has(0, "attn_q_norm") || b.has(0, "attn_norm_2")) {
      b.fail(error(Code::kUnsupportedArchitecture,
                   "\"jina-bert-v2\" models with attention norms are not supported"));
    }
  }
  MoeSpec moe = b.moe_spec(Gating::kSoftmax, false);
  moe.act = Activation::kGeluTanh;

  b.embed(1, learned ? b.vec(-1, "position_embd", hp.n_ctx_train * hp.n_embd) : -1,
          first_token_type(b));
  b.norm(-1, "token_embd_norm", Buf::kX, Buf::kH, NormKind::kLayer, "inp_norm");
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, false);
    b.add(layer, Buf::kH, Buf::kX);
    b.norm(layer, "attn_output_norm", Buf::kX, Buf::kH, NormKind::kLayer, "attn_out_norm");
    if (b.has_experts(layer)) {
      b.copy(layer, {Buf::kH}, {Buf::kX}, hp.n_embd);
      b.moe_ffn(layer, Buf::kX, moe);
    } else if (b.has(layer, "ffn_gate")) {
      const Activation act = nomic ? Activation::kSiluMul : Activation::kGeluMul;
      b.gated_ffn(layer, Buf::kH, Buf::kX, act, false);
      b.add(layer, Buf::kH, Buf::kX);
    } else {
      b.plain_ffn(layer, Buf::kH, Buf::kX, Activation::kGeluTanh, false);
      b.add(layer, Buf::kH, Buf::kX);
    }
    b.norm(layer, "layer_output_norm", Buf::kX, Buf::kH, NormKind::kLayer, "l_out");
  }
  b.no_head();
}

void build_modern_bert(Builder& b) {
  const HParams& hp = b.hp();
  const int32_t rope = b.add_rope(hp.rope);
  RopeHParams local_hp = hp.rope;
  local_hp.freq_base = hp.window.freq_base;
  const int32_t local_rope = b.add_rope(local_hp);

  b.embed(1);
  b.norm(-1, "token_embd_norm", Buf::kX, Buf::kX, NormKind::kLayer, "inp_norm");
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const int64_t period = hp.window.pattern > 0 ? hp.window.pattern : 3;
    const bool listed = !hp.window.local_layers.empty();
    const bool local = listed ? hp.window.local_layers[static_cast<size_t>(layer)] != 0
                              : hp.window.size > 0 && layer % period != 0;
    AttentionSpec attention;
    attention.rope = local ? local_rope : rope;
    attention.window = local ? static_cast<int32_t>(hp.window.size) : 0;
    if (layer == 0 && !b.has(0, "attn_norm")) {
      b.copy(layer, {Buf::kX}, {Buf::kH}, hp.n_embd);  // embeddings are already normed
    } else {
      b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kLayer, "attn_norm");
    }
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kLayer, "ffn_norm");
    b.gated_ffn(layer, Buf::kH, Buf::kX, Activation::kGeluMul, true);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.no_head("output_norm");
}

}  // namespace sluice::model
