// Parts of headers and tensors that all families share.
#include "hf/model.h"

#include <algorithm>
#include <optional>

#include "gguf/printable.h"

namespace sluice::hf {
namespace {

using gguf::printable;
using gguf::Tensor;
using gguf::TensorType;

std::optional<TensorType> tensor_type(std::string_view dtype) {
  if (dtype == "F32") return TensorType::kF32;
  if (dtype == "F16") return TensorType::kF16;
  if (dtype == "BF16") return TensorType::kBF16;
  return std::nullopt;
}

}  // namespace

void add_rope_factors(const std::vector<float>& factors, Model* model) {
  if (factors.empty()) return;
  model->made.assign(reinterpret_cast<const char*>(factors.data()), factors.size() * 4);
  Tensor t;
  t.name = "rope_freqs.weight";
  t.n_dims = 1;
  t.ne[0] = factors.size();
  t.bytes = model->made.size();
  t.file = model->header.n_files++;
  model->header.tensors.push_back(t);
}

void begin_model(const Directory& directory, std::string_view arch, Model* model,
                 gguf::MetadataWriter* writer) {
  gguf::Header& h = model->header;
  h.n_files = static_cast<uint32_t>(directory.shards.size() + directory.dense.size());
  h.data_offset = directory.shards[0].data_offset;
  h.alignment = 1;
  writer->string("general.architecture", arch);
  writer->string("sluice.format", "safetensors");
  if (!directory.name.empty()) writer->string("general.name", directory.name);
}

Result<Tensor> describe_tensor(const SafetensorsEntry& e) {
  const std::optional<TensorType> type = tensor_type(e.dtype);
  if (!type) {
    return error(Code::kUnsupportedType,
                 "the tensor \"%s\" has the type %s; F32, F16 and BF16 "
                 "are supported",
                 printable(e.name).c_str(), printable(e.dtype).c_str());
  }
  Tensor t;
  t.type = *type;
  if (e.shape.empty() || e.shape.size() > t.ne.size()) {
    return error(Code::kBadShape, "the tensor \"%s\" has %zu dimensions", printable(e.name).c_str(),
                 e.shape.size());
  }
  t.name = e.name;  // for error messages
  t.n_dims = static_cast<uint32_t>(e.shape.size());
  std::reverse_copy(e.shape.begin(), e.shape.end(), t.ne.begin());
  t.offset = e.begin;
  SLUICE_RETURN_IF_ERROR(gguf::set_tensor_bytes(&t));
  if (t.bytes != e.end - e.begin) {
    return error(Code::kBadShape, "the tensor \"%s\" has a shape that does not fit its bytes",
                 printable(e.name).c_str());
  }
  t.name = {};
  return t;
}

Status add_tensor(std::string_view name, Tensor tensor, gguf::Header* header,
                  gguf::MetadataWriter* writer) {
  if (header->tensors.size() >= gguf::kMaxTensorCount) {
    return error(Code::kBadHeader, "the files together have too many tensors");
  }
  tensor.name = writer->keep_text(name);
  header->tensors.push_back(tensor);
  return {};
}

}  // namespace sluice::hf
