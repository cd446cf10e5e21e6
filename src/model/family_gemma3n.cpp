// Gemma 3n: four streams of hidden states, of which each layer computes one and predicts and
// corrects the others (AltUp, https://arxiv.org/abs/2301.13310); a low-rank path beside attention
// (LAuReL, 2411.07501); FFN gates thresholded at a multiple of their standard deviation; per-layer
// embeddings; and later layers that share the KV cache of earlier ones.
#include <cmath>

#include "model/per_layer.h"

namespace sluice::model {
namespace {

constexpr int64_t kGemma3nPeriod = 5;  // four local layers and a global one, unless listed

class Gemma3n {
 public:
  explicit Gemma3n(Builder& b)
      : b_(b), hp_(b.hp()), n_(hp_.n_embd), active_(hp_.altup.active * n_) {}

  void build();

 private:
  [[nodiscard]] int32_t streams() const { return static_cast<int32_t>(hp_.altup.n_streams); }
  [[nodiscard]] int32_t others() const { return streams() - 1; }

  void spread();
  void merge();
  void weigh(int64_t layer, Columns in, const char* coefficients, int64_t n);
  void laurel(int64_t layer);
  void attend(int64_t layer);
  void correct(int64_t layer);
  void add_to(int64_t layer, Columns in, Columns out);

  Builder& b_;
  const HParams& hp_;
  const int64_t n_, active_;
  int32_t rope_ = -1, local_rope_ = -1;
};

void Gemma3n::add_to(int64_t layer, Columns in, Columns out) {
  b_.op(layer, in.place(), out.place(), n_, AddOp{});
}

// Expands the embedding in kX to all streams, each scaled to the norm of the first.
void Gemma3n::spread() {
  b_.head_matmul(-1, "altup_proj", {Buf::kX}, {Buf::kX, n_, n_}, n_, n_, hp_.altup.n_streams - 1);
  b_.op(-1, {Buf::kX, 0}, {Buf::kX, static_cast<int32_t>(n_)}, n_, MatchNormOp{others()});
}

// Averages all streams into the first.
void Gemma3n::merge() {
  b_.head_matmul(-1, "altup_unembd_proj", {Buf::kX, n_, n_}, {Buf::kGateUp, 0, n_}, n_, n_,
                 hp_.altup.n_streams - 1);
  b_.op(-1, {Buf::kX, static_cast<int32_t>(active_)}, {Buf::kGateUp, 0}, n_, MatchNormOp{others()});
  for (int64_t i = 0; i + 1 < hp_.altup.n_streams; ++i)
    add_to(-1, {Buf::kGateUp, i * n_}, {Buf::kX});
  b_.scale(-1, Buf::kX, Buf::kX, n_, 1 / static_cast<float>(hp_.altup.n_streams));
}

// kRouter: the modalities that the router computes from `in`, then n weights computed from them.
void Gemma3n::weigh(int64_t layer, Columns in, const char* coefficients, int64_t n) {
  b_.norm_at(layer, "altup_router_norm", in, {Buf::kH}, n_);
  const int32_t router = b_.mat(layer, "altup_router", streams(), n_);
  b_.matmul(layer, Buf::kH, Buf::kRouter, {{router, -1, 0}}, false, 1 / static_cast<float>(n_));
  b_.op(layer, Buf::kRouter, Buf::kRouter, streams(), SoftCapOp{1});  // tanh
  const int32_t w = b_.mat(layer, coefficients, n, streams());
  b_.matmul(layer, Buf::kRouter, Buf::kRouter, {{w, -1, streams()}});
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

// kT = (attention + laurel) / sqrt(2), for the active stream.
void Gemma3n::attend(int64_t layer) {
  AttentionSpec spec;
  const bool local = is_local(hp_, layer, kGemma3nPeriod);
  spec.rope = local ? local_rope_ : rope_;
  spec.window = local ? static_cast<int32_t>(hp_.window.size) : 0;
  spec.qk_norm = spec.v_norm = true;
  spec.cache = kv_layer(hp_, layer, kGemma3nPeriod);
  if (spec.cache < 0) {
    b_.fail(error(Code::kBadHeader, "attention.shared_kv_layers leaves no KV cache to share"));
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
  b_.scale(layer, Buf::kT, Buf::kT, n_, static_cast<float>(1 / std::sqrt(2.0)));
}

// Corrects all streams by the change of the active one, which is in kT.
void Gemma3n::correct(int64_t layer) {
  weigh(layer, {Buf::kT}, "altup_correct_coef", hp_.altup.n_streams);
  b_.op(layer, {Buf::kT, streams()}, {Buf::kX, static_cast<int32_t>(active_)}, n_,
        CorrectStreamsOp{streams()});
}

void Gemma3n::build() {
  const int64_t all = hp_.altup.n_streams * n_;
  rope_ = b_.add_rope(hp_.rope);
  RopeHParams local_rope = hp_.rope;
  local_rope.freq_base = hp_.window.freq_base;
  local_rope.freq_scale = 1;
  local_rope.scaling = RopeScaling::kNone;
  local_rope_ = b_.add_rope(local_rope, false);

  b_.embed(std::sqrt(static_cast<float>(n_)));
  PerLayerEmbeddings own(b_, all);
  spread();
  for (int64_t layer = 0; layer < hp_.n_layer; ++layer) {
    if (layer == hp_.attention.n_layer_kv) b_.select(all + n_);
    weigh(layer, {Buf::kX, active_}, "altup_predict_coef",
          hp_.altup.n_streams * hp_.altup.n_streams);
    b_.op(layer, {Buf::kRouter, streams()}, {Buf::kX, 0}, n_, MixStreamsOp{streams()});
    attend(layer);
    b_.norm(layer, "ffn_norm", Buf::kT, Buf::kH, NormKind::kRms, "ffn_norm");
    b_.gated_ffn(layer, Buf::kH, Buf::kAtt, Activation::kGeluMul, false);
    b_.norm(layer, "post_ffw_norm", Buf::kAtt, Buf::kAtt);
    b_.add(layer, Buf::kAtt, Buf::kT);
    correct(layer);
    b_.op(layer, {Buf::kX, static_cast<int32_t>(active_)}, {Buf::kH, 0}, n_,
          MulVecOp{b_.vec(layer, "altup_correct_scale", n_)});
    own.apply(layer, {Buf::kH});
    for (int64_t i = 1; i < hp_.altup.n_streams; ++i) add_to(layer, {Buf::kT}, {Buf::kX, i * n_});
    b_.mark("l_out", "ADD", layer, Buf::kX, 0, n_, hp_.altup.n_streams);
  }
  b_.select(all);
  merge();
  b_.head();
}

}  // namespace

void build_gemma3n(Builder& b) {
  Gemma3n(b).build();
}

}  // namespace sluice::model
