// Multi-head latent attention (MLA, https://arxiv.org/abs/2405.04434): all heads project keys and
// values from one short vector per position; part of each key is rotated and common to all heads.
// Newer files have separate key and value matrices per head, so the vector itself is cached (the
// absorbed form): queries are projected into the vector's space, and the attention output from
// there to each head's values. Older files have one matrix for both; there the cache holds full
// keys and values.
#include "model/builder.h"

namespace sluice::model {

// Queries [n_head][dk] in `out`, through q_lora_rank values if the model has them.
void Builder::latent_queries(int64_t layer, Buf out, int64_t dk) {
  const int64_t rank = hp().mla.q_lora_rank, n = hp().attention.n_head * dk;
  if (rank == 0 || has(layer, "attn_q")) {
    const int32_t q = mat(layer, "attn_q", n, hp().n_embd);
    matmul(layer, Buf::kH, out, {{q, -1, 0}});
    return;
  }
  const int32_t a = mat(layer, "attn_q_a", rank, hp().n_embd);
  matmul(layer, Buf::kH, Buf::kAtt, {{a, -1, 0}});
  norm_at(layer, "attn_q_a_norm", {Buf::kAtt}, {Buf::kAtt}, rank);
  const int32_t b = mat(layer, "attn_q_b", n, rank);
  matmul(layer, Buf::kAtt, out, {{b, -1, 0}});
}

// One key head: [vector | rotated]. The vector is also its value.
void Builder::absorbed_attention(int64_t layer, int32_t rope) {
  const int64_t heads = hp().attention.n_head, rank = hp().mla.kv_lora_rank,
                n_rot = hp().rope.n_rot;
  const int64_t dk = hp().mla.head_dim_k, dv = hp().mla.head_dim_v, plain = dk - n_rot;
  AttentionShape att;
  att.heads = static_cast<int32_t>(heads);
  att.kv_heads = 1;
  att.dk = static_cast<int32_t>(rank + n_rot);
  att.dv = static_cast<int32_t>(rank);
  att.cache = static_cast<int32_t>(layer);
  att.values_in_keys = true;
  latent_queries(layer, Buf::kGateUp, dk);
  const int32_t kv = mat(layer, "attn_kv_a_mqa", rank + n_rot, hp().n_embd);
  matmul(layer, Buf::kH, Buf::kQkv, {{kv, -1, att.keys()}});
  norm_at(layer, "attn_kv_a_norm", {Buf::kQkv, att.keys()}, {Buf::kQkv, att.keys()}, rank);
  head_matmul(layer, "attn_k_b", {Buf::kGateUp, 0, dk}, {Buf::kQkv, 0, att.dk}, rank, plain, heads);
  copy(layer, {Buf::kGateUp, plain, dk}, {Buf::kQkv, rank, att.dk}, n_rot, heads);
  if (hp().temperature.scale != 0) temperature(layer, att);
  if (rope >= 0) rotate(layer, rope, att, rank);
  attend(layer, {.rope = rope}, att, rank);
  head_matmul(layer, "attn_v_b", {Buf::kAtt, 0, rank}, {Buf::kGateUp, 0, dv}, dv, rank, heads);
  att_width_ = heads * dv;
}

// Keys [plain | rotated], with the same rotated part for all heads, and values.
void Builder::expanded_attention(int64_t layer, int32_t rope) {
  const int64_t heads = hp().attention.n_head, rank = hp().mla.kv_lora_rank,
                n_rot = hp().rope.n_rot;
  AttentionShape att;
  att.heads = att.kv_heads = static_cast<int32_t>(heads);
  att.dk = static_cast<int32_t>(hp().attention.head_dim_k);
  att.dv = static_cast<int32_t>(hp().attention.head_dim_v);
  att.cache = static_cast<int32_t>(layer);
  const int64_t plain = att.dk - n_rot, both = plain + att.dv;
  latent_queries(layer, Buf::kQkv, att.dk);
  const int32_t a = mat(layer, "attn_kv_a_mqa", rank + n_rot, hp().n_embd);
  matmul(layer, Buf::kH, Buf::kGateUp, {{a, -1, 0}});
  norm_at(layer, "attn_kv_a_norm", {Buf::kGateUp}, {Buf::kGateUp}, rank);
  const int32_t b = mat(layer, "attn_kv_b", heads * both, rank);
  matmul(layer, Buf::kGateUp, Buf::kAtt, {{b, -1, 0}});
  copy(layer, {Buf::kAtt, 0, both}, {Buf::kQkv, att.keys(), att.dk}, plain, heads);
  copy(layer, {Buf::kGateUp, rank, 0}, {Buf::kQkv, att.keys() + plain, att.dk}, n_rot, heads);
  copy(layer, {Buf::kAtt, plain, both}, {Buf::kQkv, att.values(), att.dv}, att.dv, heads);
  if (hp().temperature.scale != 0) temperature(layer, att);
  if (rope >= 0) rotate(layer, rope, att, plain);
  attend(layer, {.rope = rope}, att, plain);
}

Buf Builder::latent_attention(int64_t layer, int32_t rope, float score_scale) {
  const bool absorbed = hp().mla.head_dim_k > 0;
  const size_t first = p.ops.size();
  if (absorbed) {
    absorbed_attention(layer, rope);
  } else {
    expanded_attention(layer, rope);
  }
  for (size_t i = first; i < p.ops.size(); ++i) {
    if (p.ops[i].is<AttentionOp>()) p.ops[i].as<AttentionOp>().scale = score_scale;
  }
  return absorbed ? Buf::kGateUp : Buf::kAtt;
}

}  // namespace sluice::model
