// The attention block: queries, keys and values, their norms and RoPE, and the attention itself.
#include <algorithm>
#include <cmath>

#include "model/builder.h"

namespace sluice::model {

// In kGateUp each head's query is followed by its gate, which stays there.
void Builder::gated_query(int64_t layer, const AttentionShape& att) {
  const int32_t w = mat(layer, "attn_q", 2 * int64_t{att.keys()}, hp().n_embd);
  matmul(layer, Buf::kH, Buf::kGateUp, {{w, -1, 0}});
  copy(layer, {Buf::kGateUp, 0, 2 * att.dk}, {Buf::kQkv, 0, att.dk}, att.dk, att.heads);
}

void Builder::qkv(int64_t layer, const AttentionSpec& spec, const AttentionShape& att) {
  const int64_t nq = int64_t{att.heads} * att.dk;
  const int64_t nk = int64_t{att.kv_heads} * att.dk;
  const int64_t nv = int64_t{att.kv_heads} * att.dv;
  const auto col = [](int64_t c) { return static_cast<int32_t>(c); };
  if (has(layer, "attn_qkv")) {
    const int32_t w = mat(layer, "attn_qkv", nq + nk + nv, hp().n_embd);
    const int32_t b = vec(layer, "attn_qkv", nq + nk + nv, true, ".bias");
    matmul(layer, Buf::kH, Buf::kQkv, {{w, b, 0}});
  } else if (!att.owned_by(layer)) {  // reads another layer's KV cache
    const int32_t q = mat(layer, "attn_q", nq, hp().n_embd);
    const int32_t bq = vec(layer, "attn_q", nq, true, ".bias");
    matmul(layer, Buf::kH, Buf::kQkv, {{q, bq, 0}});
  } else if (spec.gated) {
    gated_query(layer, att);
    const int32_t k = mat(layer, "attn_k", nk, hp().n_embd);
    const int32_t v = mat(layer, "attn_v", nv, hp().n_embd);
    matmul(layer, Buf::kH, Buf::kQkv, {{k, -1, col(nq)}, {v, -1, col(nq + nk)}});
  } else if (spec.keys_as_values && !has(layer, "attn_v")) {
    const int32_t q = mat(layer, "attn_q", nq, hp().n_embd);
    const int32_t k = mat(layer, "attn_k", nk, hp().n_embd);
    matmul(layer, Buf::kH, Buf::kQkv, {{q, -1, 0}, {k, -1, col(nq)}});
    copy(layer, {Buf::kQkv, nq}, {Buf::kQkv, nq + nk}, nk);
  } else {
    const int32_t q = mat(layer, "attn_q", nq, hp().n_embd);
    const int32_t k = mat(layer, "attn_k", nk, hp().n_embd);
    const int32_t v = mat(layer, "attn_v", nv, hp().n_embd);
    const int32_t bq = vec(layer, "attn_q", nq, true, ".bias");
    const int32_t bk = vec(layer, "attn_k", nk, true, ".bias");
    const int32_t bv = vec(layer, "attn_v", nv, true, ".bias");
    matmul(layer, Buf::kH, Buf::kQkv, {{q, bq, 0}, {k, bk, col(nq)}, {v, bv, col(nq + nk)}});
  }
  widen(Buf::kQkv, nq + nk + nv);
  mark("Qcur", "MUL_MAT", layer, Buf::kQkv, 0, nq);
  mark("Qcur", "RESHAPE", layer, Buf::kQkv, 0, att.dk, att.heads);
  mark("Kcur", "MUL_MAT", layer, Buf::kQkv, nq, nk);
  mark("Kcur", "RESHAPE", layer, Buf::kQkv, nq, att.dk, att.kv_heads);
  mark("Vcur", "MUL_MAT", layer, Buf::kQkv, nq + nk, nv);
  mark("Vcur", "RESHAPE", layer, Buf::kQkv, nq + nk, att.dv, att.kv_heads);
}

void Builder::qk_norms(int64_t layer, const AttentionSpec& spec, const AttentionShape& att) {
  const int64_t dk = att.dk;
  const struct {
    const char* name;
    const char* mark;
    int64_t heads, col;
  } sides[] = {{"attn_q_norm", "Qcur_normed", att.heads, 0},
               {"attn_k_norm", "Kcur_normed", att.kv_heads, att.keys()}};
  for (const auto& side : sides) {
    if (side.col > 0 && !att.owned_by(layer)) break;
    const int64_t n = spec.qk_norm_wide ? side.heads * dk : dk;
    const bool by_head = spec.qk_layer_norm || spec.qk_norm_by_head;
    const int64_t weights = by_head ? side.heads * dk : n;
    const int32_t w =
        vec(layer, side.name, weights, false, ".weight", spec.qk_layer_norm ? 0 : hp().norm.offset);
    const int32_t bias = spec.qk_norm_wide ? vec(layer, side.name, n, true, ".bias") : -1;
    const int64_t heads = spec.qk_norm_wide ? 1 : side.heads;
    const Place at{Buf::kQkv, static_cast<int32_t>(side.col)};
    op(layer, at, at, n,
       NormOp{.weight = w,
              .bias = bias,
              .heads = static_cast<int32_t>(heads),
              .kind = spec.qk_layer_norm ? NormKind::kLayer : NormKind::kRms,
              .per_head = by_head && !spec.qk_norm_wide});
    mark(side.mark, "MUL", layer, Buf::kQkv, side.col, n, heads);
  }
}

AttentionShape Builder::attention_shape(int64_t layer, const AttentionSpec& spec) const {
  AttentionShape att;
  att.heads = static_cast<int32_t>(hp().heads(layer));
  att.kv_heads = static_cast<int32_t>(hp().kv_heads(layer));
  att.dk = static_cast<int32_t>(spec.dk > 0 ? spec.dk : hp().attention.head_dim_k);
  att.dv = static_cast<int32_t>(spec.dv > 0 ? spec.dv : hp().attention.head_dim_v);
  att.cache = spec.cache >= 0 ? spec.cache : static_cast<int32_t>(layer);
  if (!hp().attention.causal) att.cache = 0;
  att.causal = hp().attention.causal && !spec.whole;
  return att;
}

void Builder::attention(int64_t layer, const AttentionSpec& spec) {
  if (hp().kv_heads(layer) == 0) {
    fail(error(Code::kBadHeader,
               "attention.head_count_kv of layer %lld is 0, which is not supported for \"%s\"",
               static_cast<long long>(layer), hp().arch.c_str()));
  }
  const AttentionShape att = attention_shape(layer, spec);
  if (att.causal && hp().kv_heads(att.cache) != att.kv_heads) {
    fail(error(Code::kBadHeader,
               "layer %lld shares the KV cache of layer %d, which has another number of heads",
               static_cast<long long>(layer), att.cache));
  }
  qkv(layer, spec, att);
  if (hp().attention.clamp_qkv > 0) {
    op(layer, Buf::kQkv, Buf::kQkv, att.values() + att.kv_heads * att.dv,
       ClampOp{hp().attention.clamp_qkv});
  }
  const bool norms =
      spec.qk_norm || spec.qk_norm_wide || spec.qk_layer_norm || spec.qk_norm_by_head;
  if (norms && !spec.norm_after_rope) qk_norms(layer, spec, att);
  if (spec.v_norm && att.owned_by(layer)) {
    norm_at(layer, nullptr, {Buf::kQkv, att.values()}, {Buf::kQkv, att.values()}, att.dv,
            att.kv_heads);
  }
  if (spec.temperature && hp().temperature.scale != 0) temperature(layer, att);
  if (spec.rope >= 0) {
    rotate(layer, spec.rope, att);
    mark("Qcur", "ROPE", layer, Buf::kQkv, 0, att.dk, att.heads);
    mark("Kcur", "ROPE", layer, Buf::kQkv, att.keys(), att.dk, att.kv_heads);
  }
  if (norms && spec.norm_after_rope) {
    qk_norms(layer, spec, att);
  } else if (spec.norm_after_rope) {
    norm_at(layer, nullptr, {Buf::kQkv}, {Buf::kQkv}, att.dk, att.heads + att.kv_heads);
  }
  attend(layer, spec, att);
}

void Builder::temperature(int64_t layer, const AttentionShape& att) {
  op(layer, Buf::kQkv, Buf::kQkv, att.keys(), TemperatureOp{});
}

void Builder::rotate(int64_t layer, int32_t rope, const AttentionShape& att, int64_t col) {
  op(layer, Buf::kQkv, Buf::kQkv, 0, RopeOp{rope, att}).in_col = static_cast<int32_t>(col);
}

void Builder::attend(int64_t layer, const AttentionSpec& spec, const AttentionShape& att,
                     int64_t rope_col) {
  op(layer, Buf::kQkv, Buf::kAtt, 0,
     AttentionOp{.sinks = spec.sinks ? vec(layer, "attn_sinks", att.heads) : -1,
                 .relative_bias = spec.relative_bias,
                 .relative = spec.relative,
                 .att = att,
                 .scale = hp().attention.scale,
                 .softcap = hp().attention.softcap,
                 .alibi = spec.alibi,
                 .window = spec.window,
                 .chunked = spec.chunked,
                 .rope = spec.rope,
                 .rope_col = static_cast<int32_t>(rope_col)});
  att_width_ = int64_t{att.heads} * att.dv;
  widen(Buf::kAtt, att_width_);
  if (spec.gated) {
    if (att.dk != att.dv)
      fail(error(Code::kBadHeader, "attention gates of %d values do not match value heads of %d",
                 att.dk, att.dv));
    op(layer, Buf::kAtt, Buf::kAtt, att.dv,
       GatedOp{{Buf::kGateUp, att.dk}, att.heads, 2 * att.dk, Unary::kSigmoid});
  }
  mark("kqv_out", "CONT", layer, Buf::kAtt, 0, att_width_);
}

void Builder::attention_output(int64_t layer, Buf out, bool add, float scale, Buf in) {
  if (has(layer, "attn_sub_norm")) {
    norm(layer, "attn_sub_norm", in, in, NormKind::kRms, "attn_sub_norm", att_width_);
  }
  const int32_t w = mat(layer, "attn_output", hp().n_embd, att_width_);
  const int32_t b = vec(layer, "attn_output", hp().n_embd, true, ".bias");
  matmul(layer, in, out, {{w, b, 0}}, add, scale);
  mark("attn_out", "MUL_MAT", layer, out, 0, hp().n_embd, 1,
       add ? MarkPart::kAddend : MarkPart::kValue);
}

}  // namespace sluice::model
