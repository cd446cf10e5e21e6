// DeepSeek 2 and 3 (https://arxiv.org/abs/2405.04434, 2412.19437); Mistral 4, which scales queries
// by position; and Kimi Linear (2510.26692), which has latent attention without RoPE in one layer
// of four and Kimi delta attention in the others. FFNs are dense in the first layers and mixtures
// of experts in the others.
#include <cmath>

#include "model/builder.h"
#include "model/recurrent.h"

namespace sluice::model {
namespace {

// YaRN's scaling of scores for a longer context. Files hold a tenth of `mscale_all_dim`, which
// scales all of a query; the rotated part is scaled by the quotient of its own factor and that one.
struct Yarn {
  RopeHParams rope;
  float score_scale = 1;
};

Yarn yarn(const HParams& hp) {
  Yarn out;
  out.rope = hp.rope;
  const int64_t dk = hp.mla.head_dim_k > 0 ? hp.mla.head_dim_k : hp.attention.head_dim_k;
  const bool scaled = hp.rope.scaling == RopeScaling::kYarn && hp.rope.freq_scale < 1;
  const double growth = scaled ? 0.1 * std::log(1 / static_cast<double>(hp.rope.freq_scale)) : 0;
  const double all = 10 * static_cast<double>(hp.rope.log_multiplier);
  // DeepSeek's two factors are equal if it has any.
  const double rotated = hp.arch == "deepseek2" && all != 0 ? 1 : all;
  out.rope.log_multiplier = static_cast<float>(rotated);
  const double magnitude =
      hp.rope.attn_factor * (1 + growth) / (1 + rotated * growth) * (1 + all * growth);
  out.score_scale = static_cast<float>(magnitude * magnitude / std::sqrt(static_cast<double>(dk)));
  return out;
}

void feed_forward(Builder& b, int64_t layer, const MoeSpec& moe) {
  b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
  b.ffn(layer, moe);
}

void attend(Builder& b, int64_t layer, int32_t rope, float score_scale) {
  const Buf attended = b.latent_attention(layer, rope, score_scale);
  b.attention_output(layer, Buf::kX, true, 1, attended);
}

}  // namespace

void build_deepseek2(Builder& b) {
  const HParams& hp = b.hp();
  const Yarn scaling = yarn(hp);
  const int32_t rope = b.add_rope(scaling.rope);
  const MoeSpec moe = b.moe_spec(Gating::kSoftmax, false);
  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    attend(b, layer, rope, scaling.score_scale);
    feed_forward(b, layer, moe);
  }
  b.head();
}

void build_kimi_linear(Builder& b) {
  const HParams& hp = b.hp();
  const MoeSpec moe = b.moe_spec(Gating::kSigmoid, true);
  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    if (hp.kv_heads(layer) == 0) {
      kimi_delta_layer(b, layer);
    } else {
      attend(b, layer, -1, yarn(hp).score_scale);
    }
    feed_forward(b, layer, moe);
  }
  b.head();
}

}  // namespace sluice::model
