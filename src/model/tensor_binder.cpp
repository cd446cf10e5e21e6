// Looks up tensors by name and checks shape, type, and bytes in the file.
#include "model/tensor_binder.h"

#include <algorithm>
#include <cstdio>

namespace sluice::model {
namespace {

bool has_kernel(gguf::TensorType type) {
  using T = gguf::TensorType;
  switch (type) {
#define SLUICE_ELEMENT_TYPE(NAME, name, id, bytes) case T::k##NAME:
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) case T::k##NAME:
#include "kernels/types.def"
    return true;
    default:
      return false;
  }
}

Status bad_shape(const gguf::Tensor& t, const std::string& name, int64_t cols, int64_t rows) {
  return error(Code::kBadShape,
               "the tensor %s is [%llu, %llu] but the metadata requires [%lld, %lld]", name.c_str(),
               static_cast<unsigned long long>(t.ne[0]), static_cast<unsigned long long>(t.rows()),
               static_cast<long long>(cols), static_cast<long long>(rows));
}

}  // namespace

std::string TensorBinder::full_name(int64_t layer, const char* name, const char* suffix) const {
  char text[160];
  if (layer >= 0) {
    std::snprintf(text, sizeof text, "%sblk.%lld.%s%s", prefix_,
                  static_cast<long long>(layer - first_layer_), name, suffix);
  } else {
    std::snprintf(text, sizeof text, "%s%s", name, suffix);
  }
  return text;
}

const gguf::Tensor* TensorBinder::tensor(int64_t layer, const char* name,
                                         const char* suffix) const {
  return header_.find_tensor(full_name(layer, name, suffix));
}

bool TensorBinder::has(int64_t layer, const char* name, const char* suffix) const {
  return tensor(layer, name, suffix) != nullptr;
}

int64_t TensorBinder::rows_of(int64_t layer, const char* name) const {
  const gguf::Tensor* t = tensor(layer, name, ".weight");
  return t == nullptr ? 0 : static_cast<int64_t>(std::min<uint64_t>(t->rows(), kMaxWidth));
}

int32_t TensorBinder::add_mat(const gguf::Tensor& t, int64_t first_row, int64_t rows, int64_t layer,
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
  enter(layer);
  p.mats.push_back(std::move(m));
  return static_cast<int32_t>(p.mats.size()) - 1;
}

const gguf::Tensor* TensorBinder::matrix(int64_t layer, const char* name, int64_t rows,
                                         int64_t cols, bool optional) {
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

int32_t TensorBinder::mat(int64_t layer, const char* name, int64_t rows, int64_t cols,
                          bool optional) {
  const gguf::Tensor* t = matrix(layer, name, rows, cols, optional);
  return t == nullptr ? -1 : add_mat(*t, 0, rows, layer, false);
}

void TensorBinder::media_mats(int64_t layer) {
  const size_t n = p.mats.size();
  for (size_t i = 0; i < n; ++i) {
    if (p.mats[i].layer != layer) continue;
    std::string name = p.mats[i].name;  // blk.N.NAME.weight
    name.erase(0, name.find('.', 4) + 1);
    name.resize(name.rfind('.'));
    if (name.starts_with("ffn_")) name.erase(0, 4);
    const int32_t media = mat(layer, ("vis_" + name).c_str(), p.mats[i].rows, p.mats[i].cols);
    if (media < 0) return;
    p.mats[i].media = media;
    p.mats[static_cast<size_t>(media)].expert = true;
    p.mats[static_cast<size_t>(media)].share = 0;
  }
}

int32_t TensorBinder::mat_rows(int64_t layer, const char* name, int64_t all_rows, int64_t cols,
                               int64_t first, int64_t rows) {
  const int32_t index = mat(layer, name, all_rows, cols);
  if (index < 0) return -1;
  Mat& m = p.mats[static_cast<size_t>(index)];
  m.rows = rows;
  m.offset += static_cast<uint64_t>(first * m.row_bytes);
  m.row0 = first;
  return index;
}

int32_t TensorBinder::vec_transposed(int64_t layer, const char* name, int64_t n, int64_t columns,
                                     const char* suffix) {
  const int32_t index = vec(layer, name, n, false, suffix);
  if (index >= 0) p.vecs[static_cast<size_t>(index)].columns = columns;
  return index;
}

int32_t TensorBinder::vec(int64_t layer, const char* name, int64_t n, bool optional,
                          const char* suffix, float add) {
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
  enter(layer);
  p.vecs.push_back(std::move(v));
  return static_cast<int32_t>(p.vecs.size()) - 1;
}

int32_t TensorBinder::first_row(const char* name) {
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

int32_t TensorBinder::add_table(const char* name, int64_t cols, int64_t part) {
  const int32_t m = mat(-1, name, hp().n_vocab, cols);
  if (m >= 0) {
    const gguf::Tensor* t = tensor(-1, name, ".weight");
    const int64_t block = static_cast<int64_t>(gguf::type_info(t->type)->block_size);
    if (part % block != 0) fail(bad_shape(*t, name, part, block));
  }
  if (p.tables.size() == kMaxTables) fail(error(Code::kBadHeader, "too many embedding tables"));
  p.tables.push_back(m);
  return static_cast<int32_t>(p.tables.size()) - 1;
}

// Called before anything of `layer` is added. Families add every layer; what a skipped layer added
// is removed again when the next one begins.
void TensorBinder::enter(int64_t layer) {
  if (layer < 0 || layer == layer_) return;
  const auto skips = [this](int64_t l) {
    return std::find(p.skipped.begin(), p.skipped.end(), l) != p.skipped.end();
  };
  if (skips(layer_)) {
    for (size_t i = before_.vecs; i < p.vecs.size(); ++i) {
      if (p.vecs[i].name.starts_with("blk.")) continue;
      fail(error(Code::kUnsupportedArchitecture,
                 "skipping layers is not supported for \"%s\" models", hp().arch.c_str()));
    }
    const auto cut = [](auto& list, size_t n) {
      list.erase(list.begin() + static_cast<ptrdiff_t>(n), list.end());
    };
    cut(p.ops, before_.ops);
    cut(p.mats, before_.mats);
    cut(p.vecs, before_.vecs);
    cut(p.moes, before_.moes);
    cut(p.by_head, before_.by_head);
    cut(p.marks, before_.marks);
  }
  layer_ = layer;
  if (skips(layer)) {
    before_ = {p.ops.size(),  p.mats.size(),    p.vecs.size(),
               p.moes.size(), p.by_head.size(), p.marks.size()};
  }
}

}  // namespace sluice::model
