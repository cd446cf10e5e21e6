// Mamba (https://arxiv.org/abs/2312.00752) and Mamba 2 (2405.21060), and hybrids that have
// attention in some layers or in parallel: Falcon-H1 (2507.22448), Granite 4, Nemotron-H
// (2504.03624) and Jamba (2403.19887).
#include "model/recurrent.h"

namespace sluice::model {

void build_mamba(Builder& b) {
  const HParams& hp = b.hp();
  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    if (hp.arch == "mamba2") {
      mamba2_layer(b, layer);
    } else {
      mamba_layer(b, layer);
    }
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head();
}

namespace {

struct Hybrid {
  bool both = false;  // each layer has a recurrent part and attention in parallel
  bool mamba1 = false;
  bool alone = false;  // the FFN is a layer of its own
  int32_t rope = -1;
};

void feed_forward(Builder& b, int64_t layer, const Hybrid& kind) {
  const HParams& hp = b.hp();
  if (b.has_experts(layer)) {
    MoeSpec moe = b.moe_spec(kind.alone ? Gating::kSigmoid : Gating::kSoftmax, !kind.mamba1);
    if (kind.alone) moe.act = Activation::kReluSquared;
    moe.scale = hp.scales.residual;
    b.moe_ffn(layer, Buf::kX, moe);
  } else if (kind.alone) {
    squared_relu_ffn(b, layer, "ffn_up", "ffn_down", hp.ff(layer), {Buf::kH, 0}, Buf::kX, true);
  } else {
    b.gated_ffn(layer, Buf::kH, Buf::kX, Activation::kSiluMul, true, hp.scales.residual);
  }
}

}  // namespace

void build_hybrid_mamba(Builder& b) {
  const HParams& hp = b.hp();
  if (hp.attention.n_head == 0) {
    b.fail(error(Code::kBadHeader, "the metadata lacks %s.attention.head_count", hp.arch.c_str()));
    return;
  }
  Hybrid kind;
  kind.both = hp.arch == "falcon-h1";
  kind.mamba1 = hp.arch == "jamba";
  kind.alone = hp.arch.starts_with("nemotron_h");
  const bool rotates = kind.both || (hp.arch == "granitehybrid" && !hp.rope.disabled);
  if (rotates) kind.rope = b.add_rope(hp.rope);

  b.embed(hp.scales.embedding);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    const bool dense = kind.alone && hp.ff(layer) > 0;
    if (!dense && (kind.both || hp.kv_heads(layer) == 0)) {
      if (kind.mamba1) {
        mamba_layer(b, layer, hp.scales.residual);
      } else {
        mamba2_layer(b, layer, hp.scales.residual);
      }
    }
    if (!dense && hp.kv_heads(layer) > 0) {
      AttentionSpec attention;
      attention.rope = kind.rope;
      b.attention(layer, attention);
      b.attention_output(layer, Buf::kX, true, hp.scales.residual);
    }
    if (!kind.alone) {
      b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
      b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    }
    if (dense || !kind.alone) feed_forward(b, layer, kind);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head();
}

}  // namespace sluice::model
