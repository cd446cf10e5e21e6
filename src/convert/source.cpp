// Copies metadata without the keys of other containers, and undoes their row permutations and
// offsets on reading.
#include "convert/source.h"

#include <algorithm>
#include <cmath>

#include "gguf/head_clusters.h"
#include "gguf/metadata_writer.h"
#include "gguf/printable.h"
#include "kernels/kernels.h"

namespace sluice::convert {
namespace {

using gguf::Tensor;
using gguf::TensorType;

// Keys that describe the container, not the model.
bool of_container(std::string_view key) {
  for (const std::string_view k :
       {"split.no", "split.count", "split.tensors.count", "sluice.format", "sluice.rope_neox",
        "sluice.norm_offset", "GGUF.version"}) {
    if (key == k) return true;
  }
  return false;
}

std::string_view last_part(std::string_view name) {
  if (name.ends_with(".weight")) name.remove_suffix(7);
  if (name.ends_with(".bias")) name.remove_suffix(5);
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// Copies metadata. Mistral without a sliding window is architecture "llama" to other programs. If
// `llama`, keys that begin with "mistral" are renamed.
void copy_metadata(const gguf::Header& from, bool llama, gguf::Header* to) {
  gguf::MetadataWriter writer(to);
  for (const gguf::KeyValue& kv : from.metadata) {
    if (of_container(kv.key)) continue;
    if (llama && kv.key == "general.architecture") {
      writer.string(kv.key, "llama");
    } else if (llama && kv.key.starts_with("mistral.")) {
      to->metadata.push_back(
          {writer.keep_text("llama." + std::string(kv.key.substr(8))), kv.value});
    } else {
      to->metadata.push_back(kv);
    }
  }
}

}  // namespace

Result<Source> Source::create(const gguf::Header& header, Sources sources) {
  Source out;
  out.sources_ = sources;
  const std::string_view arch = header.get_string("general.architecture").value_or("");
  const bool checkpoint = header.get_string("sluice.format") == "safetensors";
  const bool llama =
      checkpoint && arch == "mistral" && header.find("mistral.attention.sliding_window") == nullptr;
  copy_metadata(header, llama, &out.header_);
  out.header_.version = 3;
  out.header_.alignment = header.get_u64("general.alignment").value_or(32);
  out.header_.tensors = header.tensors;
  std::erase_if(out.header_.tensors,  // it duplicates another tensor
                [](const Tensor& t) { return t.name == gguf::kHeadByCluster; });
  out.header_.n_files = header.n_files;
  out.rotate_half_ = header.get_bool("sluice.rope_neox").value_or(false);
  out.norm_offset_ = static_cast<float>(header.get_f64("sluice.norm_offset").value_or(0));
  out.head_size_ = header.get_u64(std::string(arch) + ".attention.key_length").value_or(0);
  SLUICE_RETURN_IF_ERROR(out.join_embedding());
  SLUICE_RETURN_IF_ERROR(gguf::index_tensors(&out.header_));
  for (const Tensor& t : out.header_.tensors) {
    const uint64_t rows = out.turn_of(t).head_rows;
    if (t.file >= sources.size())
      return error(Code::kInternal, "a tensor refers to a file that is not open");
    if (rows > 0 && (rows % 2 != 0 || (t.n_dims > 1 ? t.ne[1] : t.ne[0]) % rows != 0)) {
      return error(Code::kBadShape, "the rows of tensor \"%s\" do not divide into attention heads",
                   gguf::printable(t.name).c_str());
    }
  }
  return out;
}

// Gives the remainder tensor the embedding's name.
Status Source::join_embedding() {
  for (Tensor& t : header_.tensors) {
    if (t.name != gguf::kEmbeddingRest) continue;
    const Result<gguf::EmbeddingClusters> clusters = gguf::embedding_clusters(header_, t);
    if (!clusters.ok()) return clusters.status();
    clusters_ = *clusters;
    t.name = kEmbedding;
  }
  std::erase_if(header_.metadata, [](const gguf::KeyValue& kv) {
    return kv.key == gguf::kEmbeddingClusterOf || kv.key == gguf::kEmbeddingCentres;
  });
  return {};
}

Source::Turn Source::turn_of(const Tensor& tensor) const {
  Turn turn;
  const std::string_view part = last_part(tensor.name);
  if (rotate_half_ && (part == "attn_q" || part == "attn_k")) turn.head_rows = head_size_;
  // The delta rule's norm is stored as it is used.
  const bool norm = part == "output_norm" || (part.ends_with("_norm") && part != "ssm_norm");
  if (norm && tensor.name.ends_with(".weight")) turn.offset = norm_offset_;
  return turn;
}

bool Source::as_stored(const Tensor& tensor) const {
  const Turn turn = turn_of(tensor);
  return turn.head_rows == 0 && turn.offset == 0 && !joins(tensor);
}

bool Source::readable(TensorType type) {
  return kernels::best().supports(static_cast<kernels::Type>(type));
}

Status Source::read_bytes(const Tensor& tensor, uint64_t offset, std::span<uint8_t> out,
                          const RowOrder* order) const {
  if (order == nullptr) return sources_[tensor.file]->read(tensor.offset + offset, out);
  const uint64_t row_bytes = tensor.bytes / order->size();
  while (!out.empty()) {
    const uint64_t row = offset / row_bytes, at = offset % row_bytes;
    const auto n = static_cast<size_t>(std::min<uint64_t>(out.size(), row_bytes - at));
    const uint64_t from = static_cast<uint64_t>((*order)[row]) * row_bytes + at;
    SLUICE_RETURN_IF_ERROR(sources_[tensor.file]->read(tensor.offset + from, out.first(n)));
    out = out.subspan(n);
    offset += n;
  }
  return {};
}

Status Source::read_stored(const Tensor& tensor, uint64_t first, uint64_t n,
                           std::span<uint8_t> bytes, float* out, const RowOrder* order) const {
  const gguf::TypeInfo& info = *gguf::type_info(tensor.type);
  const uint64_t n_bytes = n / info.block_size * info.block_bytes;
  if (n_bytes > bytes.size())
    return error(Code::kInternal, "the buffer for reading weights is too small");
  const uint64_t at = first / info.block_size * info.block_bytes;
  SLUICE_RETURN_IF_ERROR(read_bytes(tensor, at, bytes.first(static_cast<size_t>(n_bytes)), order));
  const auto count = static_cast<int64_t>(n);
  if (tensor.type == TensorType::kF16) {  // the most common type: a fast path to the same values
    kernels::best().f16_to_f32(reinterpret_cast<const kernels::f16*>(bytes.data()), count, out);
  } else {
    kernels::best().dequantize(static_cast<kernels::Type>(tensor.type), bytes.data(), count, out);
  }
  return {};
}

Status Source::read(const Tensor& tensor, uint64_t first, uint64_t n, std::span<uint8_t> bytes,
                    float* out, const RowOrder* order) const {
  const Turn turn = turn_of(tensor);
  if (turn.head_rows == 0) {
    SLUICE_RETURN_IF_ERROR(read_stored(tensor, first, n, bytes, out, order));
  } else {  // row 2 i + p of a head is row p * half + i of the checkpoint
    const uint64_t cols = tensor.n_dims > 1 ? tensor.ne[0] : 1, half = turn.head_rows / 2;
    for (uint64_t done = 0; done < n;) {
      const uint64_t row = (first + done) / cols, col = (first + done) % cols;
      const uint64_t count = std::min(cols - col, n - done);
      const uint64_t in_head = row % turn.head_rows;
      const uint64_t from = row - in_head + in_head % 2 * half + in_head / 2;
      SLUICE_RETURN_IF_ERROR(
          read_stored(tensor, from * cols + col, count, bytes, out + done, nullptr));
      done += count;
    }
  }
  if (joins(tensor)) clusters_.add(first, n, 1, out);
  bool finite = true;
  for (uint64_t i = 0; i < n; i++) {
    out[i] += turn.offset;
    finite = finite && std::fabs(out[i]) <= 3.402823466e38f;
  }
  if (finite) return {};
  return error(Code::kBadWeights, "tensor \"%s\" has a value that is not finite",
               gguf::printable(tensor.name).c_str());
}

}  // namespace sluice::convert
