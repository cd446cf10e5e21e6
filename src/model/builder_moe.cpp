// Mixtures of experts: the router, the matrices of all experts, and the shared expert. Optional
// parts of a mixture are used if the file has their tensors.
#include <iterator>

#include "model/builder.h"

namespace sluice::model {

MoeSpec Builder::moe_spec(Gating gating, bool normalize) const {
  constexpr Gating kByKey[] = {Gating::kSoftmax, Gating::kSoftmax, Gating::kSigmoid,
                               Gating::kSoftmaxChosen};
  static_assert(std::size(kByKey) == kMaxExpertGating + 1);
  MoeSpec spec;
  spec.gating = hp().moe.gating == 0 ? gating : kByKey[hp().moe.gating];
  spec.normalize = hp().moe.weights_norm < 0 ? normalize : hp().moe.weights_norm != 0;
  if (hp().moe.weights_scale != 0) spec.weights_scale = hp().moe.weights_scale;
  return spec;
}

void Builder::route(int64_t layer, const MoeSpec& spec) {
  const int64_t n_expert = hp().moe.n_expert;
  if (n_expert == 0) {
    fail(error(Code::kBadHeader,
               "layer %lld has a router, but the metadata says there are no experts",
               static_cast<long long>(layer)));
    return;
  }
  const int32_t router = mat(layer, "ffn_gate_inp", n_expert, hp().n_embd);
  const int32_t bias = vec(layer, "ffn_gate_inp", n_expert, true, ".bias");
  matmul(layer, spec.router_in, Buf::kRouter, {{router, bias, 0}});
  widen(Buf::kRouter, 4 * n_expert);
  mark("ffn_moe_logits", "MUL_MAT", layer, Buf::kRouter, 0, n_expert);
}

std::vector<int32_t> Builder::experts(int64_t layer, const char* name, const char* one,
                                      int64_t first, int64_t rows, int64_t of, int64_t cols,
                                      int64_t n_expert) {
  std::vector<int32_t> out;
  if (has(layer, name)) {
    const gguf::Tensor* t = matrix(layer, name, of * n_expert, cols, false);
    for (int64_t e = 0; t != nullptr && e < n_expert; ++e) {
      out.push_back(add_mat(*t, e * of + first, rows, layer, true));
    }
    return out;
  }
  for (int64_t e = 0; e < n_expert && status().ok(); ++e) {
    const std::string of_one = std::string(one) + "." + std::to_string(e);
    const gguf::Tensor* t = matrix(layer, of_one.c_str(), rows, cols, false);
    if (t != nullptr) out.push_back(add_mat(*t, 0, rows, layer, true));
  }
  return out;
}

// `kind` is the suffix of the tensor names.
void Builder::expert_matrices(int64_t layer, Moe& moe, const char* kind, int64_t n_expert) {
  const int64_t n_embd = hp().n_embd, n_ff = moe.n_ff;
  const auto name = [kind](const char* part) { return std::string(part) + kind; };
  const std::string gate = name("ffn_gate"), up = name("ffn_up"), down = name("ffn_down");
  const std::string both = name("ffn_gate_up");
  const bool fused = has(layer, both.c_str());
  if (fused) {
    moe.gate = experts(layer, both.c_str(), "", 0, n_ff, 2 * n_ff, n_embd, n_expert);
    moe.up = experts(layer, both.c_str(), "", n_ff, n_ff, 2 * n_ff, n_embd, n_expert);
  } else {
    if (is_gated(moe.act)) {
      moe.gate = experts(layer, gate.c_str(), "ffn_gate", 0, n_ff, n_ff, n_embd, n_expert);
    }
    moe.up = experts(layer, up.c_str(), "ffn_up", 0, n_ff, n_ff, n_embd, n_expert);
  }
  moe.down = experts(layer, down.c_str(), "ffn_down", 0, n_embd, n_embd, n_ff, n_expert);
  if (fused && (!is_gated(moe.act) || has(layer, both.c_str(), ".bias"))) {
    fail(error(Code::kUnsupportedArchitecture,
               "layer %lld has a fused gate and up tensor of experts, not supported for \"%s\"",
               static_cast<long long>(layer), hp().arch.c_str()));
  }
  const struct {
    const std::string& name;
    int64_t n;
    int32_t *bias, *scale;
  } parts[] = {{fused ? both : gate, n_ff, &moe.gate_bias, &moe.gate_scale},
               {fused ? both : up, n_ff, &moe.up_bias, &moe.up_scale},
               {down, n_embd, &moe.down_bias, &moe.down_scale}};
  for (const auto& part : parts) {
    *part.bias = vec(layer, part.name.c_str(), n_expert * part.n, true, ".bias");
    *part.scale = vec(layer, part.name.c_str(), n_expert, true, ".scale");
  }
}

void Builder::ffn(int64_t layer, const MoeSpec& spec, float scale) {
  if (has_experts(layer)) {
    moe_ffn(layer, Buf::kX, spec);
  } else {
    gated_ffn(layer, Buf::kH, Buf::kX, Activation::kSiluMul, true, scale);
  }
  mark("l_out", "ADD", layer, Buf::kX, 0, hp().n_embd);
}

void Builder::moe_ffn(int64_t layer, Buf out, const MoeSpec& spec) {
  if (!spec.routed) route(layer, spec);
  if (!status().ok()) return;
  Moe moe;
  moe.n_expert = static_cast<int32_t>(hp().moe.n_expert);
  moe.n_used = static_cast<int32_t>(hp().moe.n_expert_used);
  moe.n_ff = static_cast<int32_t>(spec.n_ff > 0 ? spec.n_ff : hp().moe.n_ff_expert);
  moe.shared_by = static_cast<int32_t>(spec.shared_by);
  moe.n_group = static_cast<int32_t>(hp().moe.n_group);
  moe.n_group_used = static_cast<int32_t>(hp().moe.n_group_used);
  moe.gating = spec.gating;
  moe.normalize = spec.normalize;
  moe.weights_scale = spec.weights_scale;
  moe.weigh_input = spec.weigh_input;
  moe.act = spec.act;
  moe.choice_bias = vec(layer, "exp_probs_b", hp().moe.n_expert, true, ".bias");
  widen(Buf::kGateUp, 2 * int64_t{moe.n_ff});
  widen(out, hp().n_embd);
  expert_matrices(layer, moe, spec.kind, hp().moe.n_expert / spec.shared_by);
  p.moes.push_back(std::move(moe));
  op(layer, spec.in, out, hp().n_embd,
     MoeOp{static_cast<int32_t>(p.moes.size()) - 1, spec.add, spec.scale});
  if (spec.shared_by == 1 && has(layer, "ffn_up_shexp")) shared_expert(layer, out, spec);
}

// The expert that every token passes through, with its own width. In Qwen2-MoE a sigmoid gate
// multiplies its output; the gate is applied to the input of the last matrix, which is equivalent.
void Builder::shared_expert(int64_t layer, Buf out, const MoeSpec& spec) {
  const int64_t n_embd = hp().n_embd;
  const gguf::Tensor* first = tensor(layer, "ffn_up_shexp", ".weight");
  const gguf::Tensor* last = tensor(layer, "ffn_down_shexp", ".weight");
  const bool gated = is_gated(spec.act);
  const bool fused =
      gated && !has(layer, "ffn_gate_shexp") && last != nullptr && first->ne[1] == 2 * last->ne[0];
  const int64_t n_ff = static_cast<int64_t>(fused ? last->ne[0] : first->ne[1]);
  if (n_ff < 1 || n_ff > kMaxWidth) {
    fail(error(Code::kBadShape, "the width of layer %lld's shared expert is out of range: %lld",
               static_cast<long long>(layer), static_cast<long long>(n_ff)));
    return;
  }
  if (gated && !fused) {
    const int32_t gate = mat(layer, "ffn_gate_shexp", n_ff, n_embd);
    const int32_t up = mat(layer, "ffn_up_shexp", n_ff, n_embd);
    matmul(layer, spec.in, Buf::kGateUp, {{gate, -1, 0}, {up, -1, static_cast<int32_t>(n_ff)}});
  } else {
    const int32_t up = mat(layer, "ffn_up_shexp", (fused ? 2 : 1) * n_ff, n_embd);
    matmul(layer, spec.in, Buf::kGateUp, {{up, -1, 0}});
  }
  op(layer, Buf::kGateUp, Buf::kGateUp, n_ff, ActivateOp{spec.act});
  if (has(layer, "ffn_gate_inp_shexp")) {
    const int32_t w = mat(layer, "ffn_gate_inp_shexp", 1, n_embd);
    matmul(layer, spec.in, Buf::kRouter, {{w, -1, 0}});
    op(layer, Buf::kRouter, Buf::kGateUp, n_ff, GateOp{});
  }
  const int32_t down = mat(layer, "ffn_down_shexp", n_embd, n_ff);
  matmul(layer, Buf::kGateUp, out, {{down, -1, 0}}, true, spec.scale);
}

}  // namespace sluice::model
