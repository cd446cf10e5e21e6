// PLaMo 2: Mamba with heads (a scalar decay per head, as in Mamba 2) whose keys, queries and time
// steps come from the convolved input and are normed; it alternates with attention. Norms before
// and after every part.
#include <algorithm>

#include "model/recurrent.h"

namespace sluice::model {
namespace {

// Names of norms lack the ".weight" suffix in some files.
int32_t norm_weight(Builder& b, int64_t layer, const char* name, int64_t n) {
  return b.vec(layer, name, n, false, b.has(layer, name, "") ? "" : ".weight");
}

// kQkv: z and x of each head side by side; kGateUp: x, time steps, decays; kRouter: B | C | dt's
// input.
void mamba_heads(Builder& b, int64_t layer) {
  const HParams& hp = b.hp();
  const int64_t inner = hp.recurrent.inner, state = hp.recurrent.state;
  const int64_t heads = hp.recurrent.rank, taps = hp.recurrent.conv_kernel;
  if (inner < 1 || state < 1 || heads < 1 || taps < 1 || inner % heads != 0) {
    b.fail(error(Code::kBadHeader, "the sizes of the recurrent layers (plamo2.ssm.*) are invalid"));
    return;
  }
  const int64_t size = inner / heads, low = std::max<int64_t>(64, hp.n_embd / 16);
  const Place x{Buf::kGateUp, 0}, dt = place(Buf::kGateUp, inner),
                                  decays = place(Buf::kGateUp, inner + heads);
  const Place keys{Buf::kRouter, 0}, queries = place(Buf::kRouter, state);
  const Place step = place(Buf::kRouter, 2 * state), y{Buf::kAtt, 0};
  product(b, layer, {Buf::kH, 0}, {Buf::kQkv, 0}, b.mat(layer, "ssm_in", 2 * inner, hp.n_embd));
  b.copy(layer, {Buf::kQkv, size, 2 * size}, {Buf::kGateUp, 0, size}, size, heads);
  convolution(b, layer, "ssm_conv1d", x, inner, taps, Unary::kSilu);
  product(b, layer, x, keys, b.mat(layer, "ssm_x", 2 * state + low, inner));
  const int32_t key_norm = norm_weight(b, layer, "ssm_b_norm", state);
  head_norm(b, layer, keys, state, 1, key_norm);
  const int32_t query_norm = norm_weight(b, layer, "ssm_c_norm", state);
  head_norm(b, layer, queries, state, 1, query_norm);
  const int32_t step_norm = norm_weight(b, layer, "ssm_dt_norm", low);
  head_norm(b, layer, step, low, 1, step_norm);
  product(b, layer, step, dt, b.mat(layer, "ssm_dt", heads, low));
  decay(b, layer, dt, decays, heads, heads);

  Recurrence rec;
  rec.heads = static_cast<int32_t>(heads);
  rec.keys = static_cast<int32_t>(state);
  rec.values = static_cast<int32_t>(size);
  rec.v = x;
  rec.k = keys;
  rec.r = queries;
  rec.decay = decays;
  rec.beta = dt;
  rec.out = y;
  recurrence(b, layer, rec, b.vec(layer, "ssm_d", heads, false, ""));
  b.op(layer, y, y, size,
       GatedOp{{Buf::kQkv, 0},
               static_cast<int32_t>(heads),
               static_cast<int32_t>(2 * size),
               Unary::kSilu});
  product(b, layer, y, {Buf::kT, 0}, b.mat(layer, "ssm_out", hp.n_embd, inner));
}

}  // namespace

void build_plamo2(Builder& b) {
  const HParams& hp = b.hp();
  if (hp.attention.n_head == 0) {
    b.fail(error(Code::kBadHeader, "the metadata lacks plamo2.attention.head_count"));
    return;
  }
  AttentionSpec attention;
  attention.rope = b.add_rope(hp.rope);
  attention.qk_norm_by_head = true;

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    if (hp.kv_heads(layer) == 0) {
      mamba_heads(b, layer);
    } else {
      b.attention(layer, attention);
      b.attention_output(layer, Buf::kT, false);
    }
    b.norm(layer, "post_attention_norm", Buf::kT, Buf::kT, NormKind::kRms, "attn_post_norm");
    b.add(layer, Buf::kT, Buf::kX);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_pre_norm");
    b.gated_ffn(layer, Buf::kH, Buf::kT, Activation::kSiluMul, false);
    b.norm(layer, "post_ffw_norm", Buf::kT, Buf::kT, NormKind::kRms, "ffn_post_norm");
    b.add(layer, Buf::kT, Buf::kX);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head();
}

}  // namespace sluice::model
