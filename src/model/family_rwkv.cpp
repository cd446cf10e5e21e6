// RWKV 6 (https://arxiv.org/abs/2404.05892) and 7 (2503.14456): every layer mixes time by a
// recurrence and channels by a squared ReLU, both after mixing each token with the previous one.
#include "model/recurrent.h"

namespace sluice::model {
namespace {

constexpr float kHeadNormEps = 64e-5f;  // of the group norm after the recurrence
constexpr float kKeyNormEps = 1e-12f;

// kT = kH of the previous token - kH.
void shift(Builder& b, int64_t layer) {
  const int64_t n = b.hp().n_embd;
  b.op(layer, Buf::kH, Buf::kT, n, ShiftOp{b.carry(layer, n)});
  b.widen(Buf::kT, n);
}

// Rows of kGateUp from `first` on: kH + kT * (weights, plus the row itself with `add`), for each
// row of the weights.
void lerp(Builder& b, int64_t layer, const char* name, int64_t first, int64_t rows,
          bool add = false) {
  const int64_t n = b.hp().n_embd;
  const int32_t weights = b.vec(layer, name, rows * n);
  b.op(layer, {Buf::kH, 0}, place(Buf::kGateUp, first * n), n,
       LerpOp{weights, narrow(rows), {Buf::kT, 0}, add});
  b.widen(Buf::kGateUp, (first + rows) * n);
}

Place mixed(Builder& b, int64_t row) {
  return place(Buf::kGateUp, row * b.hp().n_embd);
}

// A low-rank projection through kRouter: out = second(unary(first in)) + bias.
void thin(Builder& b, int64_t layer, Place in, Place out, const char* first, const char* second,
          Unary between, int32_t bias) {
  const int64_t n = b.hp().n_embd;
  const int64_t rank = b.rows_of(layer, first);
  product(b, layer, in, {Buf::kRouter, 0}, b.mat(layer, first, rank, n));
  if (between != Unary::kNone) unary(b, layer, {Buf::kRouter, 0}, {Buf::kRouter, 0}, rank, between);
  product(b, layer, {Buf::kRouter, 0}, out, b.mat(layer, second, n, rank), bias);
}

Recurrence heads_of(Builder& b, kernels::StateKind kind) {
  const HParams& hp = b.hp();
  const int64_t size = hp.recurrent.head_size;
  Recurrence rec;
  rec.kind = kind;
  rec.decay_per_key = true;
  if (size < 1 || hp.n_embd % size != 0) {
    b.fail(error(Code::kBadHeader, "a head size of %lld (%s.wkv.head_size) does not fit this model",
                 static_cast<long long>(size), hp.arch.c_str()));
    return rec;
  }
  rec.heads = rec.groups = narrow(hp.n_embd / size);
  rec.keys = rec.values = narrow(size);
  return rec;
}

void normed_recurrence(Builder& b, int64_t layer, const Recurrence& rec, int32_t given) {
  recurrence(b, layer, rec, given);
  const int32_t weight = b.vec(layer, "time_mix_ln", b.hp().n_embd);
  const int32_t bias = b.vec(layer, "time_mix_ln", b.hp().n_embd, false, ".bias");
  b.op(layer, rec.out, rec.out, rec.values,
       NormOp{.weight = weight,
              .bias = bias,
              .heads = rec.heads,
              .kind = NormKind::kLayer,
              .per_head = true,
              .eps = kHeadNormEps});
}

void time_mix_output(Builder& b, int64_t layer, Place y, Place by, Unary kind) {
  const int64_t n = b.hp().n_embd;
  gate(b, layer, y, by, y, n, kind);
  product(b, layer, y, {Buf::kX, 0}, b.mat(layer, "time_mix_output", n, n), -1, true);
}

void square_product(Builder& b, int64_t layer, const char* name, Place in, Place out) {
  const int64_t n = b.hp().n_embd;
  product(b, layer, in, out, b.mat(layer, name, n, n), b.vec(layer, name, n, true, ".bias"));
}

// The token-shift weights of w, k, v, r, g depend on the token: five low-rank projections.
void time_mix6(Builder& b, int64_t layer) {
  const int64_t n = b.hp().n_embd;
  Recurrence rec = heads_of(b, kernels::StateKind::kBonus);
  if (!b.status().ok()) return;
  shift(b, layer);
  lerp(b, layer, "time_mix_lerp_x", 0, 1);
  const int64_t rank = b.rows_of(layer, "time_mix_w1") / 5;
  product(b, layer, mixed(b, 0), {Buf::kRouter, 0}, b.mat(layer, "time_mix_w1", 5 * rank, n));
  unary(b, layer, {Buf::kRouter, 0}, {Buf::kRouter, 0}, 5 * rank, Unary::kTanh);
  for (int64_t i = 0; i < 5; ++i) {
    const int32_t w = b.mat_rows(layer, "time_mix_w2", 5 * n, rank, i * n, n);
    product(b, layer, place(Buf::kRouter, i * rank), mixed(b, i), w);
  }
  lerp(b, layer, "time_mix_lerp_fused", 0, 5, true);

  rec.decay = {Buf::kQkv, 0};
  rec.k = place(Buf::kQkv, n);
  rec.v = place(Buf::kQkv, 2 * n);
  rec.r = place(Buf::kQkv, 3 * n);
  rec.out = {Buf::kAtt, 0};
  const Place g = place(Buf::kQkv, 4 * n);
  const int32_t decay = b.vec(layer, "time_mix_decay", n);
  thin(b, layer, mixed(b, 0), rec.decay, "time_mix_decay_w1", "time_mix_decay_w2", Unary::kTanh,
       decay);
  unary(b, layer, rec.decay, rec.decay, n, Unary::kExpNegExp);
  square_product(b, layer, "time_mix_key", mixed(b, 1), rec.k);
  square_product(b, layer, "time_mix_value", mixed(b, 2), rec.v);
  square_product(b, layer, "time_mix_receptance", mixed(b, 3), rec.r);
  square_product(b, layer, "time_mix_gate", mixed(b, 4), g);
  normed_recurrence(b, layer, rec, b.vec(layer, "time_mix_first", n));
  time_mix_output(b, layer, rec.out, g, Unary::kSilu);
}

// Mixes the first layer's values into those of later layers.
void mix_values(Builder& b, int64_t layer, Place v) {
  const int64_t n = b.hp().n_embd;
  const Place by = place(Buf::kQkv, 6 * n);
  if (layer == 0) return unary(b, layer, v, {Buf::kFirst, 0}, n, Unary::kNone);
  const int32_t bias = b.vec(layer, "time_mix_v0", n);
  thin(b, layer, mixed(b, 3), by, "time_mix_v1", "time_mix_v2", Unary::kNone, bias);
  unary(b, layer, by, by, n, Unary::kSigmoid);
  b.op(layer, {Buf::kFirst, 0}, v, n, Rwkv7MixOp{by});
}

void time_mix7(Builder& b, int64_t layer) {
  const int64_t n = b.hp().n_embd;
  Recurrence rec = heads_of(b, kernels::StateKind::kGeneral);
  if (!b.status().ok()) return;
  const bool gated = b.has(layer, "time_mix_g1");
  shift(b, layer);
  lerp(b, layer, "time_mix_lerp_fused", 0, gated ? 6 : 5);
  rec.r = {Buf::kQkv, 0};
  rec.decay = place(Buf::kQkv, n);
  rec.k = place(Buf::kQkv, 2 * n);
  rec.v = place(Buf::kQkv, 3 * n);
  rec.a = place(Buf::kQkv, 4 * n);
  rec.b = place(Buf::kQkv, 5 * n);
  rec.out = {Buf::kAtt, 0};
  const Place other = place(Buf::kQkv, 6 * n);  // learning rates, then the output gate
  square_product(b, layer, "time_mix_receptance", mixed(b, 0), rec.r);
  thin(b, layer, mixed(b, 1), rec.decay, "time_mix_w1", "time_mix_w2", Unary::kTanh,
       b.vec(layer, "time_mix_w0", n));
  unary(b, layer, rec.decay, rec.decay, n, Unary::kExpNegSigmoid);
  square_product(b, layer, "time_mix_key", mixed(b, 2), rec.k);
  square_product(b, layer, "time_mix_value", mixed(b, 3), rec.v);
  mix_values(b, layer, rec.v);
  thin(b, layer, mixed(b, 4), other, "time_mix_a1", "time_mix_a2", Unary::kNone,
       b.vec(layer, "time_mix_a0", n));
  unary(b, layer, other, other, n, Unary::kSigmoid);
  const int32_t removal = b.vec(layer, "time_mix_k_k", n);
  const int32_t replacement = b.vec(layer, "time_mix_k_a", n);
  const int32_t index = b.add_recurrence(rec);
  b.op(layer, rec.k, rec.k, n, Rwkv7KeysOp{removal, replacement, index, other, kKeyNormEps});

  normed_recurrence(b, layer, rec, -1);
  const int32_t bonus = b.vec(layer, "time_mix_r_k", n);
  b.op(layer, rec.v, rec.out, 0, Rwkv7BonusOp{bonus, index});
  if (gated) {
    thin(b, layer, mixed(b, 5), other, "time_mix_g1", "time_mix_g2", Unary::kSigmoid, -1);
    return time_mix_output(b, layer, rec.out, other, Unary::kNone);
  }
  product(b, layer, rec.out, {Buf::kX, 0}, b.mat(layer, "time_mix_output", n, n), -1, true);
}

void channel_mix(Builder& b, int64_t layer, bool gated) {
  const int64_t n = b.hp().n_embd, n_ff = b.hp().ff(layer);
  shift(b, layer);
  lerp(b, layer, "channel_mix_lerp_k", 0, 1);
  if (!gated) {
    return squared_relu_ffn(b, layer, "channel_mix_key", "channel_mix_value", n_ff, mixed(b, 0),
                            Buf::kX, true);
  }
  lerp(b, layer, "channel_mix_lerp_r", 1, 1);
  squared_relu_ffn(b, layer, "channel_mix_key", "channel_mix_value", n_ff, mixed(b, 0), Buf::kH,
                   false);
  product(b, layer, mixed(b, 1), {Buf::kAtt, 0}, b.mat(layer, "channel_mix_receptance", n, n));
  gate(b, layer, {Buf::kH, 0}, {Buf::kAtt, 0}, {Buf::kH, 0}, n, Unary::kSigmoid);
  b.add(layer, Buf::kH, Buf::kX);
}

}  // namespace

void build_rwkv6(Builder& b) {
  const HParams& hp = b.hp();
  b.embed(1);
  b.norm(-1, "token_embd_norm", Buf::kX, Buf::kX, NormKind::kLayer);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kLayer, "attn_norm");
    time_mix6(b, layer);
    b.norm(layer, "attn_norm_2", Buf::kX, Buf::kH, NormKind::kLayer, "ffn_norm");
    channel_mix(b, layer, true);
    const int64_t interval = hp.recurrent.rescale_interval;
    if (interval > 0 && (layer + 1) % interval == 0) {
      b.scale(layer, Buf::kX, Buf::kX, hp.n_embd, 0.5f);
    }
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head(NormKind::kLayer);
}

void build_rwkv7(Builder& b) {
  const HParams& hp = b.hp();
  b.embed(1);
  b.norm(-1, "token_embd_norm", Buf::kX, Buf::kX, NormKind::kLayer);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kLayer, "attn_norm");
    time_mix7(b, layer);
    b.norm(layer, "attn_norm_2", Buf::kX, Buf::kH, NormKind::kLayer, "ffn_norm");
    channel_mix(b, layer, false);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head(NormKind::kLayer);
}

}  // namespace sluice::model
