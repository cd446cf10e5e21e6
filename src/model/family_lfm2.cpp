// LFM2 (https://arxiv.org/abs/2511.23404): most layers mix tokens by a short gated convolution, a
// few by attention with QK norm. A layer without KV heads is a convolution layer. LFM2-MoE chooses
// experts by sigmoids and a bias.
#include "model/builder.h"
#include "model/recurrent.h"

namespace sluice::model {
namespace {

// b|c|u = W_in h; y_t = c_t * sum_j conv[j] (b*u)_{t-K+1+j}; out += W_out y.
void short_convolution(Builder& b, int64_t layer) {
  const HParams& hp = b.hp();
  const int64_t n = hp.n_embd;
  const int32_t width = static_cast<int32_t>(n);
  const int32_t in = b.mat(layer, "shortconv.in_proj", 3 * n, n);
  b.matmul(layer, Buf::kH, Buf::kQkv, {{in, -1, 0}});
  gate(b, layer, {Buf::kQkv, 0}, {Buf::kQkv, 2 * width}, {Buf::kQkv, 0}, n, Unary::kNone);
  convolution(b, layer, "shortconv.conv", {Buf::kQkv, 0}, n, hp.recurrent.short_conv_kernel,
              Unary::kNone);
  gate(b, layer, {Buf::kQkv, 0}, {Buf::kQkv, width}, {Buf::kAtt, 0}, n, Unary::kNone);
  const int32_t out = b.mat(layer, "shortconv.out_proj", n, n);
  b.matmul(layer, Buf::kAtt, Buf::kX, {{out, -1, 0}}, true);
}

}  // namespace

void build_lfm2(Builder& b) {
  const HParams& hp = b.hp();
  if (hp.recurrent.short_conv_kernel < 2) {
    b.fail(error(Code::kBadHeader, "the metadata lacks lfm2.shortconv.l_cache"));
    return;
  }
  AttentionSpec attention;
  attention.rope = b.add_rope(hp.rope);
  attention.qk_norm = true;
  const MoeSpec moe = b.moe_spec(Gating::kSigmoid);

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    if (hp.kv_heads(layer) == 0) {
      short_convolution(b, layer);
    } else {
      b.attention(layer, attention);
      b.attention_output(layer, Buf::kX, true);
    }
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    b.ffn(layer, moe);
  }
  b.head(NormKind::kRms, b.has(-1, "output_norm") ? "output_norm" : "token_embd_norm");
}

}  // namespace sluice::model
