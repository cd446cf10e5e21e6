// Turns the rows of an input into its embedding or its scores: pooling, the dense layers of
// sentence encoders, and the head of rerankers.
#include "model/builder.h"

namespace sluice::model {

void Builder::no_head(const char* norm_name, NormKind kind) {
  if (norm_name != nullptr) norm(-1, norm_name, Buf::kX, Buf::kH, kind, "result_norm");
  p.hidden = static_cast<int32_t>(p.ops.size());
}

void Builder::tails() {
  p.pool = static_cast<int32_t>(p.ops.size());
  op(-1, Buf::kH, Buf::kX, hp().n_embd, PoolOp{});
  const auto here = [this] { return static_cast<int32_t>(p.ops.size()); };
  p.embed_tail.first = here();
  dense_tail();
  p.embed_tail.end = p.rank_tail.first = here();
  rank_tail();
  p.rank_tail.end = here();
}

// dense_2 and dense_3 of sentence-transformers: matrices without bias or activation.
void Builder::dense_tail() {
  Buf in = Buf::kX;
  int64_t width = hp().n_embd;
  for (const char* name : {"dense_2", "dense_3"}) {
    const gguf::Tensor* t = tensor(-1, name, ".weight");
    if (t == nullptr) continue;
    const int64_t rows = t->rows() <= static_cast<uint64_t>(kMaxWidth)
                             ? static_cast<int64_t>(t->rows())
                             : int64_t{0};
    const int32_t w = mat(-1, name, rows, width);
    const Buf out = in == Buf::kT ? Buf::kX : Buf::kT;
    matmul(-1, in, out, {{w, vec(-1, name, rows, true, ".bias"), 0}});
    in = out;
    width = rows;
  }
  p.embed_tail.out = in;
  p.embed_tail.width = static_cast<int32_t>(width);
}

// cls: a dense layer with tanh; cls.output: the scores.
void Builder::rank_tail() {
  const gguf::Tensor* output = tensor(-1, "cls.output", ".weight");
  if (output == nullptr) output = tensor(-1, "cls", ".weight");
  if (output == nullptr) return;
  const int64_t n = hp().n_embd;
  Buf in = Buf::kX;
  const bool two = has(-1, "cls.output");
  if (two && has(-1, "cls")) {
    matmul(-1, Buf::kX, Buf::kT, {{mat(-1, "cls", n, n), vec(-1, "cls", n, true, ".bias"), 0}});
    op(-1, Buf::kT, Buf::kT, n,
       ActivateOp{hp().arch == "modern-bert" ? Activation::kGeluErf : Activation::kTanh});
    in = Buf::kT;
  }
  if (has(-1, "cls.norm")) {
    const int32_t weight = vec(-1, "cls.norm", n);
    const int32_t bias = vec(-1, "cls.norm", n, true, ".bias");
    op(-1, in, in, n, NormOp{.weight = weight, .bias = bias, .kind = NormKind::kLayer});
  }
  const int64_t rows = output->rows() <= static_cast<uint64_t>(kMaxWidth)
                           ? static_cast<int64_t>(output->rows())
                           : int64_t{0};
  const char* name = two ? "cls.output" : "cls";
  matmul(-1, in, Buf::kH, {{mat(-1, name, rows, n), vec(-1, name, rows, true, ".bias"), 0}});
  p.rank_tail.out = Buf::kH;
  p.rank_tail.width = static_cast<int32_t>(rows);
  // The row that has seen the whole input; ModernBERT's heads read the mean.
  p.rank_pooling = hp().arch == "modern-bert" ? Pooling::kMean
                   : hp().attention.causal    ? Pooling::kLast
                                              : Pooling::kCls;
  p.rank_softmax = hp().arch == "qwen3" && rows > 1;
}

}  // namespace sluice::model
