// Gemma 3n: four streams of hidden states of which each layer computes one and predicts and
// corrects the others (AltUp, https://arxiv.org/abs/2301.13310), a low-rank path beside attention
// (LAuReL, 2411.07501), FFNs whose gates are cut at a multiple of their deviation, embeddings of
// each layer's own, and later layers that read the keys and values of earlier ones.
#include <cmath>

#include "model/per_layer.h"

namespace sluice::model {
namespace {

constexpr int64_t kPeriod = 5;  // of local layers and a global one, unless they are listed

class Gemma3n {
 public:
  explicit Gemma3n(Builder& b)
      : b_(b), hp_(b.hp()), n_(hp_.n_embd), active_(hp_.altup_active * n_) {}

  void build();

 private:
  [[nodiscard]] int32_t coefficients() const { return static_cast<int32_t>(hp_.n_altup); }

  void spread();
  void merge();
  void weigh(int64_t layer, Columns in, const char* coefficients, int64_t n);
  void laurel(int64_t layer);
  void attend(int64_t layer);
  void correct(int64_t layer);
  Op& add_to(int64_t layer, Columns in, Columns out);

  Builder& b_;
  const HParams& hp_;
  const int64_t n_, active_;
  int32_t rope_ = -1, local_rope_ = -1;
};

Op& Gemma3n::add_to(int64_t layer, Columns in, Columns out) {
  Op& o = b_.add(layer, in.buf, out.buf);
  o.in_col = static_cast<int32_t>(in.col);
  o.out_col = static_cast<int32_t>(out.col);
  return o;
}

// kX from the embedding alone to all streams, each as long a vector as the first.
void Gemma3n::spread() {
  b_.head_matmul(-1, "altup_proj", {Buf::kX}, {Buf::kX, n_, n_}, n_, n_, hp_.n_altup - 1);
  Op& o = b_.op(OpKind::kMatchNorm, -1);
  o.in = o.out = Buf::kX;
  o.out_col = o.n = static_cast<int32_t>(n_);
  o.heads = static_cast<int32_t>(hp_.n_altup - 1);
}

// The mean of all streams, in the first one's place.
void Gemma3n::merge() {
  b_.head_matmul(-1, "altup_unembd_proj", {Buf::kX, n_, n_}, {Buf::kGateUp, 0, n_}, n_, n_,
                 hp_.n_altup - 1);
  Op& o = b_.op(OpKind::kMatchNorm, -1);
  o.in = Buf::kX;
  o.in_col = static_cast<int32_t>(active_);
  o.out = Buf::kGateUp;
  o.n = static_cast<int32_t>(n_);
  o.heads = static_cast<int32_t>(hp_.n_altup - 1);
  for (int64_t i = 0; i + 1 < hp_.n_altup; ++i) add_to(-1, {Buf::kGateUp, i * n_}, {Buf::kX});
  Op& mean = b_.op(OpKind::kScale, -1);
  mean.in = mean.out = Buf::kX;
  mean.n = static_cast<int32_t>(n_);
  mean.scale = 1 / static_cast<float>(hp_.n_altup);
}

// kRouter: the modalities that the router sees in `in`, then n weights made of them.
void Gemma3n::weigh(int64_t layer, Columns in, const char* coefficients, int64_t n) {
  const int64_t streams = hp_.n_altup;
  b_.norm_at(layer, "altup_router_norm", in, {Buf::kH}, n_);
  const int32_t router = b_.mat(layer, "altup_router", streams, n_);
  b_.matmul(layer, Buf::kH, Buf::kRouter, {{router, -1, 0}}, false, 1 / static_cast<float>(n_));
  Op& o = b_.op(OpKind::kSoftCap, layer);
  o.in = o.out = Buf::kRouter;
  o.n = static_cast<int32_t>(streams);
  o.softcap = 1;  // tanh
  const int32_t w = b_.mat(layer, coefficients, n, streams);
  b_.matmul(layer, Buf::kRouter, Buf::kRouter, {{w, -1, this->coefficients()}});
}

// kGateUp = kH + norm(R L kH).
void Gemma3n::laurel(int64_t layer) {
  const int64_t rank = b_.rows_of(layer, "laurel_l");
  const int32_t l = b_.mat(layer, "laurel_l", rank, n_);
  const int32_t r = b_.mat(layer, "laurel_r", n_, rank);
  b_.matmul(layer, Buf::kH, Buf::kGateUp, {{l, -1, static_cast<int32_t>(n_)}});
  b_.matmul(layer, Buf::kGateUp, Buf::kGateUp, {{r, -1, 0}}).in_col = static_cast<int32_t>(n_);
  b_.norm(layer, "laurel_post_norm", Buf::kGateUp, Buf::kGateUp);
  b_.add(layer, Buf::kH, Buf::kGateUp);
}

// kT = (attention + laurel) / sqrt(2), of the active stream.
void Gemma3n::attend(int64_t layer) {
  AttentionSpec spec;
  const bool local = is_local(hp_, layer, kPeriod);
  spec.rope = local ? local_rope_ : rope_;
  spec.window = local ? static_cast<int32_t>(hp_.sliding_window) : 0;
  spec.qk_norm = spec.v_norm = true;
  spec.cache = kv_layer(hp_, layer, kPeriod);
  if (spec.cache < 0) {
    b_.fail(error(Code::kBadHeader, "attention.shared_kv_layers leaves no keys to share"));
    return;
  }
  b_.norm_at(layer, "attn_norm", {Buf::kX, active_}, {Buf::kH}, n_);
  laurel(layer);
  b_.attention(layer, spec);
  b_.set_score_scale(1);
  b_.attention_output(layer, Buf::kT, false);
  b_.norm(layer, "post_attention_norm", Buf::kT, Buf::kT);
  add_to(layer, {Buf::kX, active_}, {Buf::kT});
  b_.add(layer, Buf::kGateUp, Buf::kT);
  Op& o = b_.op(OpKind::kScale, layer);
  o.in = o.out = Buf::kT;
  o.n = static_cast<int32_t>(n_);
  o.scale = static_cast<float>(1 / std::sqrt(2.0));
}

// All streams, by what the active one has become in kT.
void Gemma3n::correct(int64_t layer) {
  weigh(layer, {Buf::kT}, "altup_correct_coef", hp_.n_altup);
  Op& o = b_.op(OpKind::kCorrectStreams, layer);
  o.in = Buf::kT;
  o.in_col = coefficients();
  o.out = Buf::kX;
  o.out_col = static_cast<int32_t>(active_);
  o.n = static_cast<int32_t>(n_);
  o.heads = static_cast<int32_t>(hp_.n_altup);
}

void Gemma3n::build() {
  const int64_t streams = hp_.n_altup * n_;
  rope_ = b_.add_rope(hp_.rope);
  RopeHParams local_rope = hp_.rope;
  local_rope.freq_base = hp_.freq_base_swa;
  local_rope.freq_scale = 1;
  local_rope.scaling = RopeScaling::kNone;
  local_rope_ = b_.add_rope(local_rope, false);

  b_.embed(std::sqrt(static_cast<float>(n_)));
  PerLayerEmbeddings own(b_, streams);
  spread();
  for (int64_t layer = 0; layer < hp_.n_layer; ++layer) {
    if (layer == hp_.n_layer_kv) b_.select(streams + n_);
    weigh(layer, {Buf::kX, active_}, "altup_predict_coef", hp_.n_altup * hp_.n_altup);
    Op& mix = b_.op(OpKind::kMixStreams, layer);
    mix.in = Buf::kRouter;
    mix.in_col = coefficients();
    mix.out = Buf::kX;
    mix.n = static_cast<int32_t>(n_);
    mix.heads = static_cast<int32_t>(hp_.n_altup);
    attend(layer);
    b_.norm(layer, "ffn_norm", Buf::kT, Buf::kH, NormKind::kRms, "ffn_norm");
    b_.gated_ffn(layer, Buf::kH, Buf::kAtt, Activation::kGeluMul, false);
    b_.norm(layer, "post_ffw_norm", Buf::kAtt, Buf::kAtt);
    b_.add(layer, Buf::kAtt, Buf::kT);
    correct(layer);
    Op& scaled = b_.op(OpKind::kMulVec, layer);
    scaled.in = Buf::kX;
    scaled.in_col = static_cast<int32_t>(active_);
    scaled.out = Buf::kH;
    scaled.n = static_cast<int32_t>(n_);
    scaled.vec0 = b_.vec(layer, "altup_correct_scale", n_);
    own.apply(layer, {Buf::kH});
    for (int64_t i = 1; i < hp_.n_altup; ++i) add_to(layer, {Buf::kT}, {Buf::kX, i * n_});
    b_.mark("l_out", "ADD", layer, Buf::kX, 0, n_, hp_.n_altup);
  }
  b_.select(streams);
  merge();
  b_.head();
}

}  // namespace

void build_gemma3n(Builder& b) {
  Gemma3n(b).build();
}

}  // namespace sluice::model
