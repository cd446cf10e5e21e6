// Gemma (https://arxiv.org/abs/2403.08295: embeddings scaled by sqrt(n_embd), GELU gate), Gemma 2
// (2408.00118: soft caps, norms after each block, every second layer local) and Gemma 3
// (2503.19786: QK norm, five local layers per global one, two RoPE bases). EmbeddingGemma
// (2509.20354) is a bidirectional Gemma 3; its windows extend to both sides.
#include <cmath>

#include "model/builder.h"

namespace sluice::model {
namespace {

bool like_gemma3(const HParams& hp) {
  return hp.arch == "gemma3" || hp.arch == "gemma-embedding";
}

// Layers whose attention is local: all but the last of each group of `pattern`.
bool is_local(const HParams& hp, int64_t layer) {
  if (!hp.window.local_layers.empty())
    return hp.window.local_layers[static_cast<size_t>(layer)] != 0;
  const int64_t own = hp.arch == "gemma2" ? 2 : like_gemma3(hp) ? 6 : 0;
  const int64_t pattern = hp.window.pattern > 0 ? hp.window.pattern : own;
  return pattern > 0 && hp.window.size > 0 && layer % pattern < pattern - 1;
}

// The largest models scale scores by the hidden size per head instead of the head size.
float score_scale(const HParams& hp) {
  if (hp.attention.scale != 0) return hp.attention.scale;
  const bool largest =
      (hp.arch == "gemma2" && hp.n_layer == 46) || (hp.arch == "gemma3" && hp.n_layer == 62);
  const double d = largest
                       ? static_cast<double>(hp.n_embd) / static_cast<double>(hp.attention.n_head)
                       : static_cast<double>(hp.attention.head_dim_k);
  return static_cast<float>(1 / std::sqrt(d));
}

}  // namespace

void build_gemma(Builder& b) {
  const HParams& hp = b.hp();
  const bool post_norms = hp.arch != "gemma";
  const int32_t rope = b.add_rope(hp.rope);
  int32_t local_rope = rope;
  if (like_gemma3(hp)) {
    RopeHParams local = hp.rope;
    local.freq_base = hp.window.freq_base;
    local.freq_scale = 1;
    local.scaling = RopeScaling::kNone;
    local_rope = b.add_rope(local);
  }

  b.embed(std::sqrt(static_cast<float>(hp.n_embd)));
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    AttentionSpec attention;
    const bool local = is_local(hp, layer);
    attention.rope = local ? local_rope : rope;
    attention.window = local ? static_cast<int32_t>(hp.window.size) : 0;
    attention.qk_norm = like_gemma3(hp);
    const Buf block = post_norms ? Buf::kT : Buf::kX;

    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    b.attention(layer, attention);
    b.set_score_scale(score_scale(hp));
    b.attention_output(layer, block, !post_norms);
    if (post_norms) {
      b.norm(layer, "post_attention_norm", Buf::kT, Buf::kT, NormKind::kRms, "attn_post_norm");
      b.add(layer, Buf::kT, Buf::kX);
    }
    b.mark("sa_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    b.gated_ffn(layer, Buf::kH, block, Activation::kGeluMul, !post_norms);
    if (post_norms) {
      b.norm(layer, "post_ffw_norm", Buf::kT, Buf::kT, NormKind::kRms, "ffn_post_norm");
      b.add(layer, Buf::kT, Buf::kX);
    }
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  if (hp.arch == "gemma-embedding") {
    b.no_head("output_norm", NormKind::kRms);
  } else {
    b.head();
  }
}

}  // namespace sluice::model
