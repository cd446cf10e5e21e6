// Mixing and gating, in the order of https://huggingface.co/google/gemma-3n-E2B-it.
#include "model/per_layer.h"

#include <cmath>

namespace sluice::model {

bool is_local(const HParams& hp, int64_t layer, int64_t period) {
  if (hp.window.size == 0) return false;
  if (!hp.window.local_of.empty()) return hp.window.local_of[static_cast<size_t>(layer)] != 0;
  if (hp.window.pattern > 0) period = hp.window.pattern;
  return layer % period < period - 1;
}

int32_t kv_layer(const HParams& hp, int64_t layer, int64_t period) {
  int64_t at = layer;
  while (at >= 0 && (at >= hp.attention.n_layer_kv ||
                     is_local(hp, at, period) != is_local(hp, layer, period))) {
    --at;
  }
  return static_cast<int32_t>(at);
}

PerLayerEmbeddings::PerLayerEmbeddings(Builder& b, int64_t kept) : b_(b), kept_(kept) {
  const HParams& hp = b.hp();
  if (hp.n_embd_per_layer == 0) return;
  table_ =
      b.add_table("per_layer_token_embd", hp.n_layer * hp.n_embd_per_layer, hp.n_embd_per_layer);
  norm_ = b.vec(-1, "per_layer_proj_norm", hp.n_embd_per_layer);
  b.copy(-1, {Buf::kX}, {Buf::kX, kept}, hp.n_embd);
}

// (norm(W embedding / sqrt(n_embd)) + sqrt(n) * row) / sqrt(2).
void PerLayerEmbeddings::mix(int64_t layer, Columns out) {
  const HParams& hp = b_.hp();
  const int64_t n = hp.n_embd_per_layer;
  const int32_t column = static_cast<int32_t>(out.col);
  const int32_t w =
      b_.mat_rows(-1, "per_layer_model_proj", hp.n_layer * n, hp.n_embd, layer * n, n);
  b_.matmul(layer, Buf::kX, out.buf, {{w, -1, column}}, false,
            static_cast<float>(1 / std::sqrt(static_cast<double>(hp.n_embd))))
      .in_col = static_cast<int32_t>(kept_);
  b_.norm_at(layer, nullptr, out, out, n).as<NormOp>().weight = norm_;
  b_.op(layer, Place{Buf::kX, static_cast<int32_t>(layer * n)}, out.place(), n,
        RowsOp{table_, true, std::sqrt(static_cast<float>(n))});
  b_.op(layer, out.place(), out.place(), n, ScaleOp{static_cast<float>(1 / std::sqrt(2.0))});
}

void PerLayerEmbeddings::apply(int64_t layer, Columns in) {
  const HParams& hp = b_.hp();
  const int64_t n = hp.n_embd_per_layer;
  mix(layer, {Buf::kGateUp, n});
  const int32_t gate = b_.mat(layer, "inp_gate", n, hp.n_embd);
  b_.matmul(layer, in.buf, Buf::kGateUp, {{gate, -1, 0}}).in_col = static_cast<int32_t>(in.col);
  b_.op(layer, Buf::kGateUp, Buf::kGateUp, n, ActivateOp{Activation::kGeluMul});
  const int32_t down = b_.mat(layer, "proj", hp.n_embd, n);
  b_.matmul(layer, Buf::kGateUp, Buf::kT, {{down, -1, 0}});
  b_.norm(layer, "post_norm", Buf::kT, Buf::kT);
}

}  // namespace sluice::model
