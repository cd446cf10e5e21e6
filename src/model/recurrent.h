// Recurrent layers for families to use: each function appends operations that read the normed input
// in kH and add the layer's output to kX. Sizes come from the metadata and are checked against each
// other here, and against the tensors by their shapes.
#pragma once

#include "model/builder.h"

namespace sluice::model {

inline constexpr auto narrow = [](int64_t n) { return static_cast<int32_t>(n); };

// --- single operations --------------------------------------------------------------------------
[[nodiscard]] inline Place place(Buf buf, int64_t col) {
  return {buf, static_cast<int32_t>(col)};
}
// out = scale * (W in + bias), or += with `add`.
void product(Builder& b, int64_t layer, Place in, Place out, int32_t mat, int32_t bias = -1,
             bool add = false, float scale = 1);
// out = unary(in).
void unary(Builder& b, int64_t layer, Place in, Place out, int64_t n, Unary kind);
// out = in * unary(by).
void gate(Builder& b, int64_t layer, Place in, Place by, Place out, int64_t n, Unary kind);
// Norms `heads` adjacent groups of n values in place, with a weight per group if given.
void head_norm(Builder& b, int64_t layer, Place at, int64_t n, int64_t heads, int32_t weight);
// Causal convolution of n channels in place, with a bias if present.
void convolution(Builder& b, int64_t layer, const char* name, Place at, int64_t n, int64_t taps,
                 Unary kind);
// in = softplus(in + bias of ssm_dt), out = exp(ssm_a of its head * in); n values.
void decay(Builder& b, int64_t layer, Place in, Place out, int64_t n, int64_t heads);
// StateOp; `given` is the vec that the recurrence's kind needs.
void recurrence(Builder& b, int64_t layer, const Recurrence& rec, int32_t given);
// out = down(relu(up in)^2), or += with `add`.
void squared_relu_ffn(Builder& b, int64_t layer, const char* up, const char* down, int64_t n_ff,
                      Place in, Buf out, bool add);

// --- layers -------------------------------------------------------------------------------------
// Mamba (https://arxiv.org/abs/2312.00752), with norms on dt, B and C if present (Jamba).
void mamba_layer(Builder& b, int64_t layer, float scale = 1);
// Mamba 2 (https://arxiv.org/abs/2405.21060), with its gated norm if present.
void mamba2_layer(Builder& b, int64_t layer, float scale = 1);
// The gated delta rule (https://arxiv.org/abs/2412.06464) of Qwen3-Next and Qwen3.5.
void gated_delta_layer(Builder& b, int64_t layer);
// Kimi delta attention (https://arxiv.org/abs/2510.26692), with a decay per channel.
void kimi_delta_layer(Builder& b, int64_t layer);

}  // namespace sluice::model
