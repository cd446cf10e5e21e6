// Gemma 4: Gemma 3 with two head sizes (local and global layers), normed values, RoPE factors for
// part of the global heads, and a factor for each layer's output. Small models have per-layer
// embeddings and later layers that share the KV cache of earlier ones; the large one has a mixture
// of experts beside the FFN.
#include <cmath>

#include "model/per_layer.h"

namespace sluice::model {
namespace {

constexpr int64_t kGemma4Period = 6;  // five local layers and a global one, unless listed

void scale_output(Builder& b, int64_t layer) {
  const int32_t factor = b.vec(layer, "layer_output_scale", 1, true);
  if (factor < 0) return;
  b.op(layer, Buf::kX, Buf::kX, b.hp().n_embd, MulVecOp{factor});
}

// kT = norm(FFN) + norm(mixture), each of kX with its own norm. The router reads kX normed without
// weights, times a factor per value, divided by the square root of its width.
void mixture(Builder& b, int64_t layer) {
  const int64_t n = b.hp().n_embd;
  b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
  b.gated_ffn(layer, Buf::kH, Buf::kT, Activation::kGeluMul, false);
  b.norm(layer, "post_ffw_norm_1", Buf::kT, Buf::kT);
  const int32_t factors = b.vec(layer, "ffn_gate_inp", n, false, ".scale");
  b.norm_at(layer, nullptr, {Buf::kX}, {Buf::kH}, n).as<NormOp>().weight = factors;
  b.scale(layer, Buf::kH, Buf::kH, n, static_cast<float>(1 / std::sqrt(static_cast<double>(n))));
  MoeSpec moe = b.moe_spec();
  moe.act = Activation::kGeluMul;
  b.route(layer, moe);
  moe.routed = true;
  b.norm(layer, "pre_ffw_norm_2", Buf::kX, Buf::kH);
  b.scale(layer, Buf::kAtt, Buf::kAtt, n, 0);
  b.widen(Buf::kAtt, n);
  b.moe_ffn(layer, Buf::kAtt, moe);
  b.norm(layer, "post_ffw_norm_2", Buf::kAtt, Buf::kAtt);
  b.add(layer, Buf::kAtt, Buf::kT);
}

}  // namespace

void build_gemma4(Builder& b) {
  const HParams& hp = b.hp();
  const int32_t rope = b.add_rope(hp.rope);
  RopeHParams local_rope = hp.rope;
  local_rope.n_rot = static_cast<int32_t>(hp.window.n_rot);
  local_rope.freq_base = hp.window.freq_base;
  local_rope.freq_scale = 1;
  local_rope.scaling = RopeScaling::kNone;
  const int32_t rope_of_local = b.add_rope(local_rope, false);

  b.embed(std::sqrt(static_cast<float>(hp.n_embd)));
  PerLayerEmbeddings own(b, hp.n_embd);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const bool local = is_local(hp, layer, kGemma4Period);
    AttentionSpec attention;
    attention.rope = local ? rope_of_local : rope;
    attention.window = local ? static_cast<int32_t>(hp.window.size) : 0;
    attention.qk_norm = attention.v_norm = attention.keys_as_values = true;
    attention.dk = local ? hp.window.head_dim_k : hp.attention.head_dim_k;
    attention.dv = local ? hp.window.head_dim_v : hp.attention.head_dim_v;
    attention.cache = kv_layer(hp, layer, kGemma4Period);
    if (attention.cache < 0) {
      b.fail(error(Code::kBadHeader, "attention.shared_kv_layers leaves no KV cache to share"));
      return;
    }
    if (layer >= hp.attention.n_layer_kv)
      b.select(hp.n_embd_per_layer > 0 ? 2 * hp.n_embd : hp.n_embd);
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    b.attention(layer, attention);
    b.set_score_scale(1);
    b.attention_output(layer, Buf::kT, false);
    b.norm(layer, "post_attention_norm", Buf::kT, Buf::kT, NormKind::kRms, "attn_post_norm");
    b.add(layer, Buf::kT, Buf::kX);
    if (b.has_experts(layer)) {
      mixture(b, layer);
    } else {
      b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
      b.gated_ffn(layer, Buf::kH, Buf::kT, Activation::kGeluMul, false);
    }
    b.norm(layer, "post_ffw_norm", Buf::kT, Buf::kT, NormKind::kRms, "ffn_post_norm");
    b.add(layer, Buf::kT, Buf::kX);
    if (hp.n_embd_per_layer > 0) {
      own.apply(layer, {Buf::kX});
      b.add(layer, Buf::kT, Buf::kX);
    }
    scale_output(b, layer);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head();
}

}  // namespace sluice::model
