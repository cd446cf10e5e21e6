// Layer parts that families share; builder_*.cpp has the larger ones.
#include "model/builder.h"

#include <algorithm>
#include <cmath>

#include "gguf/embedding_clusters.h"
#include "model/families.h"

namespace sluice::model {

void Builder::gated_ffn(int64_t layer, Buf in, Buf out, Activation act, bool add_out, float scale) {
  const int64_t n_ff = hp().ff(layer), n_embd = hp().n_embd;
  if (has(layer, "ffn_gate")) {
    const int32_t gate = mat(layer, "ffn_gate", n_ff, n_embd);
    const int32_t up = mat(layer, "ffn_up", n_ff, n_embd);
    const int32_t bg = vec(layer, "ffn_gate", n_ff, true, ".bias");
    const int32_t bu = vec(layer, "ffn_up", n_ff, true, ".bias");
    matmul(layer, in, Buf::kGateUp, {{gate, bg, 0}, {up, bu, static_cast<int32_t>(n_ff)}});
  } else {
    const int32_t both = mat(layer, "ffn_up", 2 * n_ff, n_embd);
    matmul(layer, in, Buf::kGateUp, {{both, -1, 0}});
  }
  mark("ffn_gate", "MUL_MAT", layer, Buf::kGateUp, 0, n_ff);
  mark("ffn_up", "MUL_MAT", layer, Buf::kGateUp, n_ff, n_ff);
  if (!hp().ffn.sparsity.empty() && std::isfinite(hp().ffn.sparsity[static_cast<size_t>(layer)])) {
    op(layer, Buf::kGateUp, Buf::kGateUp, n_ff,
       SparsifyOp{hp().ffn.sparsity[static_cast<size_t>(layer)]});
  }
  activate(layer, act, n_ff);
  mark(act == Activation::kSiluMul ? "ffn_swiglu" : "ffn_geglu",
       act == Activation::kSiluMul ? "SWIGLU" : "GEGLU", layer, Buf::kGateUp, 0, n_ff);
  const int32_t down = mat(layer, "ffn_down", n_embd, n_ff);
  const int32_t bd = vec(layer, "ffn_down", n_embd, true, ".bias");
  matmul(layer, Buf::kGateUp, out, {{down, bd, 0}}, add_out, scale);
  mark("ffn_out", "MUL_MAT", layer, out, 0, n_embd, 1,
       add_out ? MarkPart::kAddend : MarkPart::kValue);
}

void Builder::plain_ffn(int64_t layer, Buf in, Buf out, Activation act, bool add_out, float scale) {
  const int64_t n_ff = hp().ff(layer), n_embd = hp().n_embd;
  const int32_t up = mat(layer, "ffn_up", n_ff, n_embd);
  const int32_t bu = vec(layer, "ffn_up", n_ff, true, ".bias");
  matmul(layer, in, Buf::kGateUp, {{up, bu, 0}});
  mark("ffn_up", bu >= 0 ? "ADD" : "MUL_MAT", layer, Buf::kGateUp, 0, n_ff);
  activate(layer, act, n_ff);
  if (act == Activation::kGeluTanh) mark("ffn_gelu", "UNARY", layer, Buf::kGateUp, 0, n_ff);
  const int32_t down = mat(layer, "ffn_down", n_embd, n_ff);
  const int32_t bd = vec(layer, "ffn_down", n_embd, true, ".bias");
  matmul(layer, Buf::kGateUp, out, {{down, bd, 0}}, add_out, scale);
  mark("ffn_out", bd >= 0 ? "ADD" : "MUL_MAT", layer, out, 0, n_embd, 1,
       add_out ? MarkPart::kAddend : MarkPart::kValue);
}

void Builder::activate(int64_t layer, Activation act, int64_t n_ff) {
  ActivateOp activation{act};
  if (act == Activation::kXielu) activation.xielu = hp().ffn.xielu[static_cast<size_t>(layer)];
  op(layer, Buf::kGateUp, Buf::kGateUp, n_ff, activation);
  if (has(layer, "ffn_sub_norm")) {
    norm(layer, "ffn_sub_norm", Buf::kGateUp, Buf::kGateUp, NormKind::kRms, nullptr, n_ff);
  }
}

void Builder::head(NormKind kind, const char* norm_name) {
  select(hp().n_embd);
  norm(-1, norm_name, Buf::kX, Buf::kH, kind, "result_norm");
  if (p.decoder == 0) p.hidden = static_cast<int32_t>(p.ops.size());
  p.head = mat(-1, "output", hp().n_vocab, hp().n_embd,
               header_.find_tensor(gguf::kEmbeddingRest) == nullptr);
  if (p.head < 0) p.head = p.embedding;
  const int32_t bias = vec(-1, "output", hp().n_vocab, true, ".bias");
  matmul(-1, Buf::kH, Buf::kLogits, {{p.head, bias, 0}}, false, 1 / hp().scales.logit);
  if (hp().scales.logit_softcap != 0) {
    op(-1, Buf::kLogits, Buf::kLogits, hp().n_vocab, SoftCapOp{hp().scales.logit_softcap});
  }
  mark("result_output", "MUL_MAT", -1, Buf::kLogits, 0, hp().n_vocab);
}

Result<Program> build_program(const gguf::Header& header, std::span<const int32_t> skipped) {
  Result<HParams> hp = read_hparams(header);
  if (!hp.ok()) return hp.status();
  Program program;
  program.hp = std::move(*hp);
  program.skipped.assign(skipped.begin(), skipped.end());
  const Family* family = find_family(program.hp.arch);
  Builder b(header, program);
  family->build(b);
  if (b.status().ok()) b.tails();
  if (!b.status().ok()) return b.status();
  return program;
}

}  // namespace sluice::model
