// Recurrent layers, operation by operation.
#include "model/recurrent.h"

#include <cmath>

namespace sluice::model {
namespace {

// Reports sizes that are missing or do not divide; false: cannot build the layer.
bool sound(Builder& b, bool condition) {
  if (!condition) {
    b.fail(error(Code::kBadHeader, "the sizes of the recurrent layers (%s.ssm.*) are invalid",
                 b.hp().arch.c_str()));
  }
  return condition;
}

}  // namespace

void product(Builder& b, int64_t layer, Place in, Place out, int32_t mat, int32_t bias, bool add,
             float scale) {
  b.matmul(layer, in.buf, out.buf, {{mat, bias, out.col}}, add, scale);
  b.last().in_col = in.col;
  b.widen(in.buf, in.col + b.last().n);
}

void unary(Builder& b, int64_t layer, Place in, Place out, int64_t n, Unary kind) {
  b.op(layer, in, out, n, UnaryOp{kind});
  b.widen(out.buf, out.col + n);
}

void gate(Builder& b, int64_t layer, Place in, Place by, Place out, int64_t n, Unary kind) {
  b.op(layer, in, out, n, GatedOp{.gate = by, .unary = kind});
  b.widen(out.buf, out.col + n);
}

void head_norm(Builder& b, int64_t layer, Place at, int64_t n, int64_t heads, int32_t weight) {
  b.op(layer, at, at, n, NormOp{.weight = weight, .heads = narrow(heads)});
}

void convolution(Builder& b, int64_t layer, const char* name, Place at, int64_t n, int64_t taps,
                 Unary kind) {
  const int32_t weights = b.vec_transposed(layer, name, taps * n, taps);
  const int32_t bias = b.vec(layer, name, n, true, ".bias");
  b.op(layer, at, at, n, ConvOp{weights, bias, kind, b.carry(layer, (taps - 1) * n)});
}

void squared_relu_ffn(Builder& b, int64_t layer, const char* up, const char* down, int64_t n_ff,
                      Place in, Buf out, bool add) {
  const int64_t n_embd = b.hp().n_embd;
  const int32_t up_bias = b.vec(layer, up, n_ff, true, ".bias");
  product(b, layer, in, {Buf::kAtt, 0}, b.mat(layer, up, n_ff, n_embd), up_bias);
  unary(b, layer, {Buf::kAtt, 0}, {Buf::kAtt, 0}, n_ff, Unary::kReluSquared);
  const int32_t down_bias = b.vec(layer, down, n_embd, true, ".bias");
  product(b, layer, {Buf::kAtt, 0}, {out, 0}, b.mat(layer, down, n_embd, n_ff), down_bias, add);
}

void decay(Builder& b, int64_t layer, Place in, Place out, int64_t n, int64_t heads) {
  const int32_t bias = b.vec(layer, "ssm_dt", n, false, ".bias");
  const int32_t rate = b.vec(layer, "ssm_a", heads, false, "");
  b.op(layer, in, out, n, DecayOp{bias, rate, narrow(heads)});
  b.widen(in.buf, in.col + n);
  b.widen(out.buf, out.col + n);
}

void recurrence(Builder& b, int64_t layer, const Recurrence& rec, int32_t given) {
  const int64_t size = int64_t{rec.heads} * rec.keys * rec.values;
  b.op(layer, rec.v.buf, rec.out.buf, 0,
       StateOp{given, b.add_recurrence(rec), b.carry(layer, size)});
  b.widen(rec.out.buf, rec.out.col + int64_t{rec.heads} * rec.values);
}

// kQkv: x | z; kRouter: dt's input | B | C; kGateUp: dt.
void mamba_layer(Builder& b, int64_t layer, float scale) {
  const HParams& hp = b.hp();
  const int64_t inner = hp.recurrent.inner, state = hp.recurrent.state, rank = hp.recurrent.rank;
  if (!sound(b, inner > 0 && state > 0 && rank > 0 && hp.recurrent.conv_kernel > 0)) return;
  const Place x{Buf::kQkv, 0}, z = place(Buf::kQkv, inner);
  const Place low{Buf::kRouter, 0}, dt{Buf::kGateUp, 0}, y{Buf::kAtt, 0};
  const Place keys = place(Buf::kRouter, rank), queries = place(Buf::kRouter, rank + state);
  product(b, layer, {Buf::kH, 0}, x, b.mat(layer, "ssm_in", 2 * inner, hp.n_embd));
  convolution(b, layer, "ssm_conv1d", x, inner, hp.recurrent.conv_kernel, Unary::kSilu);
  product(b, layer, x, low, b.mat(layer, "ssm_x", rank + 2 * state, inner));
  const struct {
    const char* name;
    Place at;
    int64_t n;
  } normed[] = {
      {"ssm_dt_norm", low, rank}, {"ssm_b_norm", keys, state}, {"ssm_c_norm", queries, state}};
  for (const auto& part : normed) {
    if (!hp.recurrent.norms && !b.has(layer, part.name)) continue;
    const int32_t weight = b.vec(layer, part.name, part.n, hp.recurrent.norms);
    head_norm(b, layer, part.at, part.n, 1, weight);
  }
  const int32_t bias = b.vec(layer, "ssm_dt", inner, false, ".bias");
  product(b, layer, low, dt, b.mat(layer, "ssm_dt", inner, rank), bias);
  unary(b, layer, dt, dt, inner, Unary::kSoftplus);

  Recurrence rec;
  rec.keys = narrow(state);
  rec.values = narrow(inner);
  rec.r = queries;
  rec.k = keys;
  rec.v = x;
  rec.decay = dt;
  rec.out = y;
  const int32_t index = b.add_recurrence(rec);
  const int32_t rates = b.vec_transposed(layer, "ssm_a", inner * state, state, "");
  const int32_t skip = b.vec(layer, "ssm_d", inner, false, "");
  b.op(layer, x.buf, y.buf, 0, ScanOp{rates, skip, index, b.carry(layer, inner * state)});
  gate(b, layer, y, z, y, inner, Unary::kSilu);
  product(b, layer, y, {Buf::kX, 0}, b.mat(layer, "ssm_out", hp.n_embd, inner), -1, true, scale);
}

// kQkv: z | x | B | C | dt; kRouter: decays.
void mamba2_layer(Builder& b, int64_t layer, float scale) {
  const HParams& hp = b.hp();
  const int64_t inner = hp.recurrent.inner, state = hp.recurrent.state;
  const int64_t heads = hp.recurrent.rank, groups = hp.recurrent.groups;
  if (!sound(b, inner > 0 && state > 0 && heads > 0 && groups > 0 && hp.recurrent.conv_kernel > 0 &&
                    inner % heads == 0 && heads % groups == 0)) {
    return;
  }
  const int64_t mixed = inner + 2 * groups * state;  // channels of the convolution
  const Place z{Buf::kQkv, 0}, x = place(Buf::kQkv, inner), y{Buf::kAtt, 0};
  const Place dt = place(Buf::kQkv, inner + mixed), decays{Buf::kRouter, 0};
  product(b, layer, {Buf::kH, 0}, z, b.mat(layer, "ssm_in", inner + mixed + heads, hp.n_embd));
  convolution(b, layer, "ssm_conv1d", x, mixed, hp.recurrent.conv_kernel, Unary::kSilu);
  decay(b, layer, dt, decays, heads, heads);

  Recurrence rec;
  rec.heads = narrow(heads);
  rec.groups = narrow(groups);
  rec.keys = narrow(state);
  rec.values = narrow(inner / heads);
  rec.v = x;
  rec.k = place(Buf::kQkv, 2 * inner);
  rec.r = place(Buf::kQkv, 2 * inner + groups * state);
  rec.decay = decays;
  rec.beta = dt;
  rec.out = y;
  recurrence(b, layer, rec, b.vec(layer, "ssm_d", heads, false, ""));
  gate(b, layer, y, z, y, inner, Unary::kSilu);
  const int32_t weight = b.vec(layer, "ssm_norm", inner, true);
  if (weight >= 0) {
    b.op(layer, y, y, inner / groups,
         NormOp{.weight = weight, .heads = narrow(groups), .per_head = true});
  }
  product(b, layer, y, {Buf::kX, 0}, b.mat(layer, "ssm_out", hp.n_embd, inner), -1, true, scale);
}

namespace {

// Normalizes keys to length 1, and queries to 1 / sqrt(size).
void unit_keys(Builder& b, int64_t layer, Place q, Place k, int64_t size, int64_t heads) {
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  b.op(layer, q, q, size, NormOp{.heads = narrow(heads), .kind = NormKind::kL2, .scale = scale});
  b.op(layer, k, k, size, NormOp{.heads = narrow(heads), .kind = NormKind::kL2});
}

// Writes each head's beta and decay input to kRouter. Qwen3-Next has them in one matrix, by groups.
void delta_gates(Builder& b, int64_t layer, int64_t heads, int64_t groups) {
  const int64_t n_embd = b.hp().n_embd;
  const int32_t n = narrow(heads);
  b.widen(Buf::kRouter, 2 * heads);
  if (!b.has(layer, "ssm_ba")) {
    const int32_t beta = b.mat(layer, "ssm_beta", heads, n_embd);
    const int32_t alpha = b.mat(layer, "ssm_alpha", heads, n_embd);
    b.matmul(layer, Buf::kH, Buf::kRouter, {{beta, -1, 0}, {alpha, -1, n}});
    return;
  }
  product(b, layer, {Buf::kH, 0}, {Buf::kAtt, 0}, b.mat(layer, "ssm_ba", 2 * heads, n_embd));
  const int32_t each = narrow(heads / groups);
  for (const int32_t part : {0, 1}) {
    b.copy(layer, {Buf::kAtt, part * each, 2 * each}, {Buf::kRouter, part * n, each}, each, groups);
  }
}

}  // namespace

// kQkv: q | k | v | z; kRouter: beta | alpha; kGateUp: decays. Value heads share keys: neighbours
// in Qwen3-Next, every groups-th head in Qwen3.5.
void gated_delta_layer(Builder& b, int64_t layer) {
  const HParams& hp = b.hp();
  const int64_t inner = hp.recurrent.inner, size = hp.recurrent.state;
  const int64_t heads = hp.recurrent.rank, groups = hp.recurrent.groups;
  if (!sound(b, inner > 0 && size > 0 && heads > 0 && groups > 0 && hp.recurrent.conv_kernel > 0 &&
                    inner % heads == 0 && heads % groups == 0)) {
    return;
  }
  const int64_t keys = groups * size, mixed = 2 * keys + inner;
  const Place q{Buf::kQkv, 0}, k = place(Buf::kQkv, keys), z = place(Buf::kQkv, mixed);
  const Place y{Buf::kAtt, 0}, beta{Buf::kRouter, 0}, alpha = place(Buf::kRouter, heads);
  const int32_t w = b.mat(layer, "attn_qkv", mixed, hp.n_embd);
  const int32_t wz = b.mat(layer, "attn_gate", inner, hp.n_embd);
  b.matmul(layer, Buf::kH, Buf::kQkv, {{w, -1, 0}, {wz, -1, z.col}});
  delta_gates(b, layer, heads, groups);
  convolution(b, layer, "ssm_conv1d", q, mixed, hp.recurrent.conv_kernel, Unary::kSilu);
  unit_keys(b, layer, q, k, size, groups);
  unary(b, layer, beta, beta, heads, Unary::kSigmoid);
  decay(b, layer, alpha, {Buf::kGateUp, 0}, heads, heads);

  Recurrence rec;
  rec.kind = kernels::StateKind::kDelta;
  rec.heads = narrow(heads);
  rec.groups = narrow(groups);
  rec.interleaved = hp.arch != "qwen3next";
  rec.keys = narrow(size);
  rec.values = narrow(inner / heads);
  rec.r = q;
  rec.k = k;
  rec.v = place(Buf::kQkv, 2 * keys);
  rec.decay = {Buf::kGateUp, 0};
  rec.beta = beta;
  rec.out = y;
  recurrence(b, layer, rec, -1);
  const int32_t norm = b.vec(layer, "ssm_norm", inner / heads);
  head_norm(b, layer, y, inner / heads, heads, norm);
  gate(b, layer, y, z, y, inner, Unary::kSilu);
  product(b, layer, y, {Buf::kX, 0}, b.mat(layer, "ssm_out", hp.n_embd, inner), -1, true);
}

// kQkv: q | k | v; kGateUp: decays, then gates; kRouter: two low-rank intermediates, then beta.
void kimi_delta_layer(Builder& b, int64_t layer) {
  const HParams& hp = b.hp();
  const int64_t heads = hp.attention.n_head, size = hp.recurrent.head_size, n = heads * size;
  const int64_t taps = hp.recurrent.conv_kernel;
  if (!sound(b, heads > 0 && size > 0 && taps > 0)) return;
  const Place q{Buf::kQkv, 0}, k = place(Buf::kQkv, n), v = place(Buf::kQkv, 2 * n);
  const Place h{Buf::kH, 0}, low{Buf::kRouter, 0}, wide{Buf::kGateUp, 0}, y{Buf::kAtt, 0};
  const int32_t wq = b.mat(layer, "attn_q", n, hp.n_embd);
  const int32_t wk = b.mat(layer, "attn_k", n, hp.n_embd);
  const int32_t wv = b.mat(layer, "attn_v", n, hp.n_embd);
  b.matmul(layer, Buf::kH, Buf::kQkv, {{wq, -1, q.col}, {wk, -1, k.col}, {wv, -1, v.col}});
  convolution(b, layer, "ssm_conv1d_q", q, n, taps, Unary::kSilu);
  convolution(b, layer, "ssm_conv1d_k", k, n, taps, Unary::kSilu);
  convolution(b, layer, "ssm_conv1d_v", v, n, taps, Unary::kSilu);
  unit_keys(b, layer, q, k, size, heads);
  product(b, layer, h, low, b.mat(layer, "ssm_f_a", size, hp.n_embd));
  product(b, layer, low, wide, b.mat(layer, "ssm_f_b", n, size));
  decay(b, layer, wide, wide, n, heads);
  product(b, layer, h, low, b.mat(layer, "ssm_beta", heads, hp.n_embd));
  unary(b, layer, low, low, heads, Unary::kSigmoid);

  Recurrence rec;
  rec.kind = kernels::StateKind::kDelta;
  rec.heads = rec.groups = narrow(heads);
  rec.keys = rec.values = narrow(size);
  rec.decay_per_key = true;
  rec.r = q;
  rec.k = k;
  rec.v = v;
  rec.decay = wide;
  rec.beta = low;
  rec.out = y;
  recurrence(b, layer, rec, -1);
  head_norm(b, layer, y, size, heads, b.vec(layer, "ssm_norm", size));
  product(b, layer, h, low, b.mat(layer, "ssm_g_a", size, hp.n_embd));
  product(b, layer, low, wide, b.mat(layer, "ssm_g_b", n, size));
  gate(b, layer, y, wide, y, n, Unary::kSigmoid);
  product(b, layer, y, {Buf::kX, 0}, b.mat(layer, "attn_output", hp.n_embd, n), -1, true);
}

}  // namespace sluice::model
