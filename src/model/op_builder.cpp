// Single operations.
#include "model/op_builder.h"

#include <algorithm>

#include "gguf/embedding_clusters.h"

namespace sluice::model {

void OpBuilder::widen(Buf buf, int64_t width) {
  int64_t& w = p.width[static_cast<size_t>(buf)];
  w = std::max(w, width);
}

Op& OpBuilder::op(int64_t layer, Place in, Place out, int64_t n, const OpFields& fields) {
  enter(layer);
  p.ops.push_back({static_cast<int32_t>(layer), in.buf, out.buf, in.col, out.col,
                   static_cast<int32_t>(n), fields});
  return p.ops.back();
}

Op& OpBuilder::op(int64_t layer, Buf in, Buf out, int64_t n, const OpFields& fields) {
  return op(layer, Place{in, 0}, Place{out, 0}, n, fields);
}

Carried OpBuilder::carry(int64_t layer, int64_t values) const {
  int64_t at = 0;
  for (const Op& before : p.ops) {
    if (before.layer != layer) continue;
    if (const Carried* c = before.carried(); c != nullptr && c->size > 0) at = c->at + c->size;
  }
  return {values, at};
}

int32_t OpBuilder::add_recurrence(const Recurrence& recurrence) {
  p.recurrences.push_back(recurrence);
  return static_cast<int32_t>(p.recurrences.size()) - 1;
}

void OpBuilder::mark(const char* name, const char* kind, int64_t layer, Buf buf, int64_t col,
                     int64_t ne0, int64_t ne1, MarkPart part) {
  p.marks.push_back({static_cast<int32_t>(p.ops.size()) - 1, name, kind,
                     static_cast<int32_t>(layer), buf, static_cast<int32_t>(col),
                     static_cast<int32_t>(ne0), static_cast<int32_t>(ne1), part});
}

int32_t OpBuilder::add_rope(const RopeHParams& rope, bool factors) {
  Rope r;
  r.hp = rope;
  // Many files with factors by length lack a scaling type.
  if (rope.scaling == RopeScaling::kNone && has(-1, "rope_factors_long")) {
    r.hp.scaling = RopeScaling::kLongRope;
  }
  const int64_t half = rope.n_rot / 2;
  if (!factors) {
    p.ropes.push_back(r);
    return static_cast<int32_t>(p.ropes.size()) - 1;
  }
  r.factors_short = vec(-1, "rope_freqs", half, true);
  if (r.factors_short < 0) r.factors_short = vec(0, "rope_freqs", half, true);
  if (r.hp.scaling == RopeScaling::kLongRope) {
    r.factors_short = vec(-1, "rope_factors_short", half, true);
    r.factors_long = vec(-1, "rope_factors_long", half, true);
  }
  p.ropes.push_back(r);
  return static_cast<int32_t>(p.ropes.size()) - 1;
}

void OpBuilder::embed(float scale, int32_t positions, int32_t types) {
  const gguf::Tensor* rest = header_.find_tensor(gguf::kEmbeddingRest);
  p.embedding =
      mat(-1, rest != nullptr ? "token_embd_rest" : "token_embd", hp().n_vocab, hp().n_embd);
  p.tables.push_back(p.embedding);
  embed_tokens(scale, positions, types);
  if (positions >= 0) p.max_context = hp().n_ctx_train;  // the table's rows
  widen(Buf::kX, hp().n_embd);
  widen(Buf::kH, hp().n_embd);
  mark("embd", "GET_ROWS", -1, Buf::kX, 0, hp().n_embd);
}

void OpBuilder::embed_tokens(float scale, int32_t positions, int32_t types) {
  const bool scales_media = hp().arch.rfind("gemma", 0) != 0;
  op(-1, Buf::kX, Buf::kX, hp().n_embd, EmbedOp{positions, types, scale, scales_media});
}

void OpBuilder::norm(int64_t layer, const char* name, Buf in, Buf out, NormKind kind,
                     const char* mark_name, int64_t n) {
  if (n == 0) n = hp().n_embd;
  int32_t weight = -1, bias = -1;
  if (name != nullptr) {
    const bool bare = !has(layer, name) && has(layer, name, "");  // as in PLaMo's files
    weight = vec(layer, name, n, false, bare ? "" : ".weight", hp().norm.offset);
    bias = vec(layer, name, n, true, ".bias");
  }
  op(layer, in, out, n, NormOp{.weight = weight, .bias = bias, .kind = kind});
  widen(in, n);
  widen(out, n);
  if (mark_name != nullptr) {
    if (kind == NormKind::kRms && in != out && std::string_view(mark_name) == "attn_norm") {
      mark("norm", "RMS_NORM", layer, in, 0, n, 1, MarkPart::kUnweighted);
    }
    mark(mark_name, bias >= 0 ? "ADD" : "MUL", layer, out, 0, n);
  }
}

Op& OpBuilder::matmul(int64_t layer, Buf in, Buf out, std::initializer_list<MatPart> parts,
                      bool add, float scale) {
  MatmulOp product{.add = add, .scale = scale};
  int64_t n = 0;
  for (const MatPart& part : parts) {
    if (part.mat < 0) continue;  // absent: already reported
    const Mat& m = p.mats[static_cast<size_t>(part.mat)];
    n = m.cols;
    MatPart& own = product.all[static_cast<size_t>(product.n_parts++)] = part;
    own.factor = factor(part);
    widen(out, part.out_col + m.rows);
    widen(in, m.cols);
  }
  return op(layer, in, out, n, product);
}

// A matrix may have one scale for all its weights, as in ternary and NVFP4 files: "attn_q.scale".
int32_t OpBuilder::factor(const MatPart& part) {
  constexpr std::string_view kWeight = ".weight";
  std::string name = p.mats[static_cast<size_t>(part.mat)].name;
  if (!name.ends_with(kWeight)) return -1;
  name.resize(name.size() - kWeight.size());
  if (name.ends_with("ffn_gate_inp")) return -1;  // Gemma 4: scales the router's input
  return vec(-1, name.c_str(), 1, true, ".scale");
}

Op& OpBuilder::add(int64_t layer, Buf in, Buf out, float scale) {
  return op(layer, in, out, hp().n_embd, AddOp{scale});
}

void OpBuilder::scale(int64_t layer, Buf in, Buf out, int64_t n, float by) {
  op(layer, in, out, n, ScaleOp{by});
}

Op& OpBuilder::norm_at(int64_t layer, const char* name, Columns in, Columns out, int64_t n,
                       int64_t heads) {
  const int32_t weight =
      name == nullptr ? -1 : vec(layer, name, n, false, ".weight", hp().norm.offset);
  widen(in.buf, in.col + n * heads);
  widen(out.buf, out.col + n * heads);
  return op(layer, in.place(), out.place(), n,
            NormOp{.weight = weight, .heads = static_cast<int32_t>(heads)});
}

void OpBuilder::copy(int64_t layer, Columns in, Columns out, int64_t n, int64_t heads) {
  op(layer, in.place(), out.place(), n,
     CopyOp{static_cast<int32_t>(heads), static_cast<int32_t>(in.step),
            static_cast<int32_t>(out.step)});
  widen(in.buf, in.col + in.step * (heads - 1) + n);
  widen(out.buf, out.col + out.step * (heads - 1) + n);
}

void OpBuilder::head_matmul(int64_t layer, const char* name, Columns in, Columns out, int64_t rows,
                            int64_t cols, int64_t heads) {
  const gguf::Tensor* t = matrix(layer, name, heads * rows, cols, false);
  if (t == nullptr) return;
  n_head_mats_ += heads;
  if (n_head_mats_ > kMaxHeadMats) {
    fail(error(Code::kBadHeader, "the layers have more than %lld per-head matrices",
               static_cast<long long>(kMaxHeadMats)));
    return;
  }
  std::vector<int32_t> mats;
  for (int64_t h = 0; h < heads; ++h) mats.push_back(add_mat(*t, h * rows, rows, layer, false));
  op(layer, in.place(), out.place(), cols,
     HeadMatmulOp{static_cast<int32_t>(p.by_head.size()), static_cast<int32_t>(heads),
                  static_cast<int32_t>(in.step), static_cast<int32_t>(out.step)});
  p.by_head.push_back(std::move(mats));
  widen(in.buf, in.col + in.step * (heads - 1) + cols);
  widen(out.buf, out.col + out.step * (heads - 1) + rows);
}

void OpBuilder::select(int64_t n) {
  if (selected_) return;
  selected_ = true;
  op(-1, Buf::kX, Buf::kX, n, SelectOp{});
}

}  // namespace sluice::model
