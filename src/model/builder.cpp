// Tensor lookup with checks, and the operations and layer parts shared by the families.
#include "model/builder.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "model/families.h"

namespace sluice::model {
namespace {

bool has_kernel(gguf::TensorType type) {
  using T = gguf::TensorType;
  switch (type) {
    case T::kF32:
    case T::kF16:
    case T::kBF16:
    case T::kQ4_0:
    case T::kQ4_1:
    case T::kQ5_0:
    case T::kQ5_1:
    case T::kQ8_0:
    case T::kQ2_K:
    case T::kQ3_K:
    case T::kQ4_K:
    case T::kQ5_K:
    case T::kQ6_K:
    case T::kIQ4_NL:
    case T::kIQ4_XS:
    case T::kTQ1_0:
    case T::kTQ2_0:
    case T::kMXFP4:
      return true;
    default:
      return false;
  }
}

Status bad_shape(const gguf::Tensor& t, const std::string& name, int64_t cols, int64_t rows) {
  return error(Code::kBadShape,
               "the tensor %s is [%llu, %llu] but the metadata makes it [%lld, %lld]", name.c_str(),
               static_cast<unsigned long long>(t.ne[0]), static_cast<unsigned long long>(t.rows()),
               static_cast<long long>(cols), static_cast<long long>(rows));
}

}  // namespace

std::string Builder::full_name(int64_t layer, const char* name, const char* suffix) const {
  char text[160];
  if (layer >= 0) {
    std::snprintf(text, sizeof text, "%sblk.%lld.%s%s", prefix_,
                  static_cast<long long>(layer - first_layer_), name, suffix);
  } else {
    std::snprintf(text, sizeof text, "%s%s", name, suffix);
  }
  return text;
}

const gguf::Tensor* Builder::tensor(int64_t layer, const char* name, const char* suffix) const {
  return header_.find_tensor(full_name(layer, name, suffix));
}

bool Builder::has(int64_t layer, const char* name, const char* suffix) const {
  return tensor(layer, name, suffix) != nullptr;
}

int64_t Builder::rows_of(int64_t layer, const char* name) const {
  const gguf::Tensor* t = tensor(layer, name, ".weight");
  return t == nullptr ? 0 : static_cast<int64_t>(std::min<uint64_t>(t->rows(), kMaxWidth));
}

int32_t Builder::add_mat(const gguf::Tensor& t, int64_t first_row, int64_t rows, int64_t layer,
                         bool expert) {
  Mat m;
  m.name = std::string(t.name);
  m.type = static_cast<kernels::Type>(t.type);
  m.rows = rows;
  m.cols = static_cast<int64_t>(t.ne[0]);
  m.file = t.file;
  m.row_bytes = static_cast<int64_t>(t.row_bytes());
  m.offset = t.offset + static_cast<uint64_t>(first_row * m.row_bytes);
  m.row0 = first_row;
  m.tensor_rows = static_cast<int64_t>(t.rows());
  m.slice_rows = static_cast<int64_t>(t.ne[1]);
  m.layer = static_cast<int32_t>(layer);
  m.expert = expert;
  p.mats.push_back(std::move(m));
  return static_cast<int32_t>(p.mats.size()) - 1;
}

const gguf::Tensor* Builder::matrix(int64_t layer, const char* name, int64_t rows, int64_t cols,
                                    bool optional) {
  const std::string full = full_name(layer, name, ".weight");
  const gguf::Tensor* t = header_.find_tensor(full);
  if (t == nullptr) {
    if (!optional) fail(error(Code::kMissingTensor, "the tensor %s is missing", full.c_str()));
    return nullptr;
  }
  if (static_cast<int64_t>(t->ne[0]) != cols || static_cast<int64_t>(t->rows()) != rows) {
    fail(bad_shape(*t, full, cols, rows));
    return nullptr;
  }
  if (!has_kernel(t->type)) {
    const gguf::TypeInfo* info = gguf::type_info(t->type);
    fail(error(Code::kUnsupportedType, "the tensor %s has the type %s, which is not supported",
               full.c_str(), info ? info->name : "unknown"));
    return nullptr;
  }
  return t;
}

int32_t Builder::mat(int64_t layer, const char* name, int64_t rows, int64_t cols, bool optional) {
  const gguf::Tensor* t = matrix(layer, name, rows, cols, optional);
  return t == nullptr ? -1 : add_mat(*t, 0, rows, layer, false);
}

int32_t Builder::mat_rows(int64_t layer, const char* name, int64_t all_rows, int64_t cols,
                          int64_t first, int64_t rows) {
  const int32_t index = mat(layer, name, all_rows, cols);
  if (index < 0) return -1;
  Mat& m = p.mats[static_cast<size_t>(index)];
  m.rows = rows;
  m.offset += static_cast<uint64_t>(first * m.row_bytes);
  m.row0 = first;
  return index;
}

int32_t Builder::vec_transposed(int64_t layer, const char* name, int64_t n, int64_t columns,
                                const char* suffix) {
  const int32_t index = vec(layer, name, n, false, suffix);
  if (index >= 0) p.vecs[static_cast<size_t>(index)].columns = columns;
  return index;
}

int32_t Builder::vec(int64_t layer, const char* name, int64_t n, bool optional, const char* suffix,
                     float add) {
  const std::string full = full_name(layer, name, suffix);
  const gguf::Tensor* t = header_.find_tensor(full);
  if (t == nullptr) {
    if (!optional) fail(error(Code::kMissingTensor, "the tensor %s is missing", full.c_str()));
    return -1;
  }
  if (static_cast<int64_t>(t->ne[0] * t->rows()) != n) {
    fail(bad_shape(*t, full, n, 1));
    return -1;
  }
  using T = gguf::TensorType;
  if (t->type != T::kF32 && t->type != T::kF16 && t->type != T::kBF16) {
    fail(error(Code::kUnsupportedType, "the tensor %s is not F32, F16 or BF16", full.c_str()));
    return -1;
  }
  Vec v;
  v.name = full;
  v.file = t->file;
  v.offset = t->offset;
  v.bytes = t->bytes;
  v.type = static_cast<uint32_t>(t->type);
  v.n = n;
  v.add = add;
  p.vecs.push_back(std::move(v));
  return static_cast<int32_t>(p.vecs.size()) - 1;
}

int32_t Builder::first_row(const char* name) {
  const std::string full = full_name(-1, name, ".weight");
  const gguf::Tensor* t = header_.find_tensor(full);
  const int64_t rows =
      t == nullptr ? 1 : static_cast<int64_t>(std::min<uint64_t>(t->rows(), uint64_t{1} << 16));
  const int32_t index = vec(-1, name, rows * hp().n_embd);
  if (index >= 0) {
    Vec& v = p.vecs[static_cast<size_t>(index)];
    v.n = hp().n_embd;
    v.bytes = t->bytes / static_cast<uint64_t>(rows);
  }
  return index;
}

void Builder::widen(Buf buf, int64_t width) {
  int64_t& w = p.width[static_cast<size_t>(buf)];
  w = std::max(w, width);
}

Op& Builder::op(OpKind kind, int64_t layer) {
  Op o;
  o.kind = kind;
  o.layer = static_cast<int32_t>(layer);
  p.ops.push_back(o);
  return p.ops.back();
}

Op& Builder::stateful(OpKind kind, int64_t layer, int64_t values) {
  int64_t at = 0;
  for (const Op& before : p.ops) {
    if (before.layer == layer && before.state > 0) at = before.state_at + before.state;
  }
  Op& o = op(kind, layer);
  o.state = values;
  o.state_at = at;
  return o;
}

int32_t Builder::add_recurrence(const Recurrence& recurrence) {
  p.recurrences.push_back(recurrence);
  return static_cast<int32_t>(p.recurrences.size()) - 1;
}

void Builder::mark(const char* name, const char* kind, int64_t layer, Buf buf, int64_t col,
                   int64_t ne0, int64_t ne1, MarkPart part) {
  p.marks.push_back({static_cast<int32_t>(p.ops.size()) - 1, name, kind,
                     static_cast<int32_t>(layer), buf, static_cast<int32_t>(col),
                     static_cast<int32_t>(ne0), static_cast<int32_t>(ne1), part});
}

int32_t Builder::add_table(const char* name, int64_t cols, int64_t part) {
  const int32_t m = mat(-1, name, hp().n_vocab, cols);
  if (m >= 0) {
    const gguf::Tensor* t = tensor(-1, name, ".weight");
    const int64_t block = static_cast<int64_t>(gguf::type_info(t->type)->block_size);
    if (part % block != 0) fail(bad_shape(*t, name, part, block));
  }
  if (p.tables.size() == kMaxTables) fail(error(Code::kBadHeader, "too many tables of rows"));
  p.tables.push_back(m);
  return static_cast<int32_t>(p.tables.size()) - 1;
}

int32_t Builder::add_rope(const RopeHParams& rope, bool factors) {
  Rope r;
  r.hp = rope;
  // Factors by length go without a scaling type in many files.
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

void Builder::embed(float scale, int32_t positions, int32_t types) {
  p.embedding = mat(-1, "token_embd", hp().n_vocab, hp().n_embd);
  p.tables.push_back(p.embedding);
  embed_tokens(scale, positions, types);
  if (positions >= 0) p.max_context = hp().n_ctx_train;  // the table's rows
  widen(Buf::kX, hp().n_embd);
  widen(Buf::kH, hp().n_embd);
  mark("embd", "GET_ROWS", -1, Buf::kX, 0, hp().n_embd);
}

void Builder::embed_tokens(float scale, int32_t positions, int32_t types) {
  Op& o = op(OpKind::kEmbed, -1);
  o.out = Buf::kX;
  o.n = static_cast<int32_t>(hp().n_embd);
  o.scale = scale;
  o.vec0 = positions;
  o.vec1 = types;
  o.table = 0;
}

void Builder::norm(int64_t layer, const char* name, Buf in, Buf out, NormKind kind,
                   const char* mark_name, int64_t n) {
  if (n == 0) n = hp().n_embd;
  int32_t weight = -1, bias = -1;
  if (name != nullptr) {
    const bool bare = !has(layer, name) && has(layer, name, "");  // as PLaMo's files have it
    weight = vec(layer, name, n, false, bare ? "" : ".weight", hp().norm_offset);
    bias = vec(layer, name, n, true, ".bias");
  }
  Op& o = op(OpKind::kNorm, layer);
  o.in = in;
  o.out = out;
  o.n = static_cast<int32_t>(n);
  o.norm = kind;
  o.vec0 = weight;
  o.vec1 = bias;
  widen(in, n);
  widen(out, n);
  if (mark_name != nullptr) {
    if (kind == NormKind::kRms && in != out && std::string_view(mark_name) == "attn_norm") {
      mark("norm", "RMS_NORM", layer, in, 0, n, 1, MarkPart::kUnweighted);
    }
    mark(mark_name, bias >= 0 ? "ADD" : "MUL", layer, out, 0, n);
  }
}

Op& Builder::matmul(int64_t layer, Buf in, Buf out, std::initializer_list<MatPart> parts, bool add,
                    float scale) {
  Op& o = op(OpKind::kMatmul, layer);
  o.in = in;
  o.out = out;
  o.add = add;
  o.scale = scale;
  for (const MatPart& part : parts) {
    if (part.mat < 0) continue;  // absent: the error is already noted
    const Mat& m = p.mats[static_cast<size_t>(part.mat)];
    o.n = static_cast<int32_t>(m.cols);
    o.parts[static_cast<size_t>(o.n_parts)] = part;
    o.parts[static_cast<size_t>(o.n_parts++)].factor = factor(part);
    widen(out, part.out_col + m.rows);
    widen(in, m.cols);
  }
  return o;
}

// A matrix may have one scale for all its weights, as ternary ones do: "attn_q.scale".
int32_t Builder::factor(const MatPart& part) {
  constexpr std::string_view kWeight = ".weight";
  std::string name = p.mats[static_cast<size_t>(part.mat)].name;
  if (!name.ends_with(kWeight)) return -1;
  name.resize(name.size() - kWeight.size());
  if (name.ends_with("ffn_gate_inp")) return -1;  // Gemma 4's scales the router's input, by column
  const int32_t found = vec(-1, name.c_str(), 1, true, ".scale");
  if (found >= 0 && part.bias >= 0) {
    fail(error(Code::kUnsupportedArchitecture,
               "the tensor %s.weight has a scale and a bias, which is not supported",
               name.c_str()));
  }
  return found;
}

Op& Builder::add(int64_t layer, Buf in, Buf out, float scale) {
  Op& o = op(OpKind::kAdd, layer);
  o.in = in;
  o.out = out;
  o.n = static_cast<int32_t>(hp().n_embd);
  o.scale = scale;
  return o;
}

Op& Builder::norm_at(int64_t layer, const char* name, Columns in, Columns out, int64_t n,
                     int64_t heads) {
  const int32_t weight =
      name == nullptr ? -1 : vec(layer, name, n, false, ".weight", hp().norm_offset);
  Op& o = op(OpKind::kNorm, layer);
  o.in = in.buf;
  o.out = out.buf;
  o.in_col = static_cast<int32_t>(in.col);
  o.out_col = static_cast<int32_t>(out.col);
  o.n = static_cast<int32_t>(n);
  o.heads = static_cast<int32_t>(heads);
  o.vec0 = weight;
  widen(in.buf, in.col + n * heads);
  widen(out.buf, out.col + n * heads);
  return o;
}

Op& Builder::grouped(OpKind kind, int64_t layer, Columns in, Columns out, int64_t n,
                     int64_t heads) {
  Op& o = op(kind, layer);
  o.in = in.buf;
  o.out = out.buf;
  o.in_col = static_cast<int32_t>(in.col);
  o.out_col = static_cast<int32_t>(out.col);
  o.in_step = static_cast<int32_t>(in.step);
  o.out_step = static_cast<int32_t>(out.step);
  o.n = static_cast<int32_t>(n);
  o.heads = static_cast<int32_t>(heads);
  return o;
}

Op& Builder::copy(int64_t layer, Columns in, Columns out, int64_t n, int64_t heads) {
  Op& o = grouped(OpKind::kCopy, layer, in, out, n, heads);
  widen(in.buf, in.col + in.step * (heads - 1) + n);
  widen(out.buf, out.col + out.step * (heads - 1) + n);
  return o;
}

void Builder::head_matmul(int64_t layer, const char* name, Columns in, Columns out, int64_t rows,
                          int64_t cols, int64_t heads) {
  const gguf::Tensor* t = matrix(layer, name, heads * rows, cols, false);
  if (t == nullptr) return;
  n_head_mats_ += heads;
  if (n_head_mats_ > kMaxHeadMats) {
    fail(error(Code::kBadHeader, "the layers have more than %lld matrices of heads",
               static_cast<long long>(kMaxHeadMats)));
    return;
  }
  std::vector<int32_t> mats;
  for (int64_t h = 0; h < heads; ++h) mats.push_back(add_mat(*t, h * rows, rows, layer, false));
  Op& o = grouped(OpKind::kHeadMatmul, layer, in, out, cols, heads);
  o.by_head = static_cast<int32_t>(p.by_head.size());
  p.by_head.push_back(std::move(mats));
  widen(in.buf, in.col + in.step * (heads - 1) + cols);
  widen(out.buf, out.col + out.step * (heads - 1) + rows);
}

void Builder::select(int64_t n) {
  if (selected_) return;
  selected_ = true;
  op(OpKind::kSelect, -1).n = static_cast<int32_t>(n);
}

// Each head's query in kGateUp is followed by its gate, which stays there.
void Builder::gated_query(int64_t layer, const AttentionShape& att) {
  const int32_t w = mat(layer, "attn_q", 2 * int64_t{att.keys()}, hp().n_embd);
  matmul(layer, Buf::kH, Buf::kGateUp, {{w, -1, 0}});
  copy(layer, {Buf::kGateUp, 0, 2 * att.dk}, {Buf::kQkv, 0, att.dk}, att.dk, att.heads);
}

void Builder::qkv(int64_t layer, const AttentionSpec& spec, const AttentionShape& att) {
  const int64_t nq = int64_t{att.heads} * att.dk;
  const int64_t nk = int64_t{att.kv_heads} * att.dk;
  const int64_t nv = int64_t{att.kv_heads} * att.dv;
  const auto col = [](int64_t c) { return static_cast<int32_t>(c); };
  if (has(layer, "attn_qkv")) {
    const int32_t w = mat(layer, "attn_qkv", nq + nk + nv, hp().n_embd);
    const int32_t b = vec(layer, "attn_qkv", nq + nk + nv, true, ".bias");
    matmul(layer, Buf::kH, Buf::kQkv, {{w, b, 0}});
  } else if (!att.owned_by(layer)) {  // another layer's keys and values are read
    const int32_t q = mat(layer, "attn_q", nq, hp().n_embd);
    const int32_t bq = vec(layer, "attn_q", nq, true, ".bias");
    matmul(layer, Buf::kH, Buf::kQkv, {{q, bq, 0}});
  } else if (spec.gated) {
    gated_query(layer, att);
    const int32_t k = mat(layer, "attn_k", nk, hp().n_embd);
    const int32_t v = mat(layer, "attn_v", nv, hp().n_embd);
    matmul(layer, Buf::kH, Buf::kQkv, {{k, -1, col(nq)}, {v, -1, col(nq + nk)}});
  } else if (spec.keys_as_values && !has(layer, "attn_v")) {
    const int32_t q = mat(layer, "attn_q", nq, hp().n_embd);
    const int32_t k = mat(layer, "attn_k", nk, hp().n_embd);
    matmul(layer, Buf::kH, Buf::kQkv, {{q, -1, 0}, {k, -1, col(nq)}});
    copy(layer, {Buf::kQkv, nq}, {Buf::kQkv, nq + nk}, nk);
  } else {
    const int32_t q = mat(layer, "attn_q", nq, hp().n_embd);
    const int32_t k = mat(layer, "attn_k", nk, hp().n_embd);
    const int32_t v = mat(layer, "attn_v", nv, hp().n_embd);
    const int32_t bq = vec(layer, "attn_q", nq, true, ".bias");
    const int32_t bk = vec(layer, "attn_k", nk, true, ".bias");
    const int32_t bv = vec(layer, "attn_v", nv, true, ".bias");
    matmul(layer, Buf::kH, Buf::kQkv, {{q, bq, 0}, {k, bk, col(nq)}, {v, bv, col(nq + nk)}});
  }
  widen(Buf::kQkv, nq + nk + nv);
  mark("Qcur", "MUL_MAT", layer, Buf::kQkv, 0, nq);
  mark("Qcur", "RESHAPE", layer, Buf::kQkv, 0, att.dk, att.heads);
  mark("Kcur", "MUL_MAT", layer, Buf::kQkv, nq, nk);
  mark("Kcur", "RESHAPE", layer, Buf::kQkv, nq, att.dk, att.kv_heads);
  mark("Vcur", "MUL_MAT", layer, Buf::kQkv, nq + nk, nv);
  mark("Vcur", "RESHAPE", layer, Buf::kQkv, nq + nk, att.dv, att.kv_heads);
}

void Builder::qk_norms(int64_t layer, const AttentionSpec& spec, const AttentionShape& att) {
  const int64_t dk = att.dk;
  const struct {
    const char* name;
    const char* mark;
    int64_t heads, col;
  } sides[] = {{"attn_q_norm", "Qcur_normed", att.heads, 0},
               {"attn_k_norm", "Kcur_normed", att.kv_heads, att.keys()}};
  for (const auto& side : sides) {
    if (side.col > 0 && !att.owned_by(layer)) break;
    const int64_t n = spec.qk_norm_wide ? side.heads * dk : dk;
    const bool by_head = spec.qk_layer_norm || spec.qk_norm_by_head;
    const int64_t weights = by_head ? side.heads * dk : n;
    const int32_t w =
        vec(layer, side.name, weights, false, ".weight", spec.qk_layer_norm ? 0 : hp().norm_offset);
    const int32_t bias = spec.qk_norm_wide ? vec(layer, side.name, n, true, ".bias") : -1;
    Op& o = op(OpKind::kNorm, layer);
    o.in = o.out = Buf::kQkv;
    o.in_col = o.out_col = static_cast<int32_t>(side.col);
    o.n = static_cast<int32_t>(n);
    o.heads = spec.qk_norm_wide ? 1 : static_cast<int32_t>(side.heads);
    o.vec0 = w;
    o.vec1 = bias;
    o.norm = spec.qk_layer_norm ? NormKind::kLayer : NormKind::kRms;
    o.vec_per_head = by_head && !spec.qk_norm_wide;
    mark(side.mark, "MUL", layer, Buf::kQkv, side.col, n, o.heads);
  }
}

AttentionShape Builder::attention_shape(int64_t layer, const AttentionSpec& spec) const {
  AttentionShape att;
  att.heads = static_cast<int32_t>(hp().heads(layer));
  att.kv_heads = static_cast<int32_t>(hp().kv_heads(layer));
  att.dk = static_cast<int32_t>(spec.dk > 0 ? spec.dk : hp().head_dim_k);
  att.dv = static_cast<int32_t>(spec.dv > 0 ? spec.dv : hp().head_dim_v);
  att.cache = spec.cache >= 0 ? spec.cache : static_cast<int32_t>(layer);
  if (!hp().causal) att.cache = 0;
  att.causal = hp().causal && !spec.whole;
  return att;
}

void Builder::attention(int64_t layer, const AttentionSpec& spec) {
  if (hp().kv_heads(layer) == 0) {
    fail(error(Code::kBadHeader,
               "attention.head_count_kv gives layer %lld no heads, which \"%s\" does not allow",
               static_cast<long long>(layer), hp().arch.c_str()));
  }
  const AttentionShape att = attention_shape(layer, spec);
  if (att.causal && hp().kv_heads(att.cache) != att.kv_heads) {
    fail(error(Code::kBadHeader, "layer %lld reads the keys of layer %d, which has other heads",
               static_cast<long long>(layer), att.cache));
  }
  qkv(layer, spec, att);
  if (hp().clamp_qkv > 0) {
    Op& o = op(OpKind::kClamp, layer);
    o.in = o.out = Buf::kQkv;
    o.n = att.values() + att.kv_heads * att.dv;
    o.softcap = hp().clamp_qkv;
  }
  const bool norms =
      spec.qk_norm || spec.qk_norm_wide || spec.qk_layer_norm || spec.qk_norm_by_head;
  if (norms && !spec.norm_after_rope) qk_norms(layer, spec, att);
  if (spec.v_norm && att.owned_by(layer)) {
    norm_at(layer, nullptr, {Buf::kQkv, att.values()}, {Buf::kQkv, att.values()}, att.dv,
            att.kv_heads);
  }
  if (spec.temperature && hp().temperature_scale != 0) temperature(layer, att);
  if (spec.rope >= 0) {
    rotate(layer, spec.rope, att);
    mark("Qcur", "ROPE", layer, Buf::kQkv, 0, att.dk, att.heads);
    mark("Kcur", "ROPE", layer, Buf::kQkv, att.keys(), att.dk, att.kv_heads);
  }
  if (norms && spec.norm_after_rope) {
    qk_norms(layer, spec, att);
  } else if (spec.norm_after_rope) {
    norm_at(layer, nullptr, {Buf::kQkv}, {Buf::kQkv}, att.dk, att.heads + att.kv_heads);
  }
  attend(layer, spec, att);
}

void Builder::temperature(int64_t layer, const AttentionShape& att) {
  Op& o = op(OpKind::kTemperature, layer);
  o.in = o.out = Buf::kQkv;
  o.n = att.keys();
}

void Builder::rotate(int64_t layer, int32_t rope, const AttentionShape& att, int64_t col) {
  Op& o = op(OpKind::kRope, layer);
  o.in = o.out = Buf::kQkv;
  o.in_col = static_cast<int32_t>(col);
  o.rope = rope;
  o.att = att;
}

void Builder::attend(int64_t layer, const AttentionSpec& spec, const AttentionShape& att) {
  const int32_t sinks = spec.sinks ? vec(layer, "attn_sinks", att.heads) : -1;
  Op& o = op(OpKind::kAttention, layer);
  o.in = Buf::kQkv;
  o.out = Buf::kAtt;
  o.window = spec.window;
  o.chunked = spec.chunked;
  o.softcap = hp().attn_softcap;
  o.scale = hp().attn_scale;
  o.att = att;
  o.vec0 = sinks;
  o.alibi = spec.alibi;
  o.relative = spec.relative;
  o.vec1 = spec.relative_bias;
  att_width_ = int64_t{att.heads} * att.dv;
  widen(Buf::kAtt, att_width_);
  if (spec.gated) {
    if (att.dk != att.dv)
      fail(error(Code::kBadHeader, "gates of %d values do not fit heads of %d", att.dk, att.dv));
    Op& gate = op(OpKind::kGated, layer);
    gate.in = gate.out = Buf::kAtt;
    gate.unary = Unary::kSigmoid;
    gate.gate = {Buf::kGateUp, att.dk};
    gate.stride = 2 * att.dk;
    gate.n = att.dv;
    gate.heads = att.heads;
  }
  mark("kqv_out", "CONT", layer, Buf::kAtt, 0, att_width_);
}

void Builder::attention_output(int64_t layer, Buf out, bool add, float scale, Buf in) {
  if (has(layer, "attn_sub_norm")) {
    norm(layer, "attn_sub_norm", in, in, NormKind::kRms, "attn_sub_norm", att_width_);
  }
  const int32_t w = mat(layer, "attn_output", hp().n_embd, att_width_);
  const int32_t b = vec(layer, "attn_output", hp().n_embd, true, ".bias");
  matmul(layer, in, out, {{w, b, 0}}, add, scale);
  mark("attn_out", "MUL_MAT", layer, out, 0, hp().n_embd, 1,
       add ? MarkPart::kAddend : MarkPart::kValue);
}

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
  if (!hp().ffn_sparsity.empty() && std::isfinite(hp().ffn_sparsity[static_cast<size_t>(layer)])) {
    Op& sparse = op(OpKind::kSparsify, layer);
    sparse.in = sparse.out = Buf::kGateUp;
    sparse.n = static_cast<int32_t>(n_ff);
    sparse.scale = hp().ffn_sparsity[static_cast<size_t>(layer)];
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
  Op& o = op(OpKind::kActivate, layer);
  o.in = o.out = Buf::kGateUp;
  o.n = static_cast<int32_t>(n_ff);
  o.act = act;
  if (act == Activation::kXielu) o.xielu = hp().xielu[static_cast<size_t>(layer)];
  if (has(layer, "ffn_sub_norm")) {
    norm(layer, "ffn_sub_norm", Buf::kGateUp, Buf::kGateUp, NormKind::kRms, nullptr, n_ff);
  }
}

void Builder::head(NormKind kind, const char* norm_name) {
  select(hp().n_embd);
  norm(-1, norm_name, Buf::kX, Buf::kH, kind, "result_norm");
  if (p.decoder == 0) p.hidden = static_cast<int32_t>(p.ops.size());
  p.head = mat(-1, "output", hp().n_vocab, hp().n_embd, true);
  if (p.head < 0) p.head = p.embedding;
  const int32_t bias = vec(-1, "output", hp().n_vocab, true, ".bias");
  matmul(-1, Buf::kH, Buf::kLogits, {{p.head, bias, 0}}, false, 1 / hp().logit_scale);
  if (hp().final_softcap != 0) {
    Op& o = op(OpKind::kSoftCap, -1);
    o.in = o.out = Buf::kLogits;
    o.n = static_cast<int32_t>(hp().n_vocab);
    o.softcap = hp().final_softcap;
  }
  mark("result_output", "MUL_MAT", -1, Buf::kLogits, 0, hp().n_vocab);
}

Result<Program> build_program(const gguf::Header& header) {
  Result<HParams> hp = read_hparams(header);
  if (!hp.ok()) return hp.status();
  Program program;
  program.hp = std::move(*hp);
  const Family* family = find_family(program.hp.arch);
  Builder b(header, program);
  family->build(b);
  if (b.status().ok()) b.tails();
  if (!b.status().ok()) return b.status();
  return program;
}

}  // namespace sluice::model
