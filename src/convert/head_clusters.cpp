// Writes the metadata keys of the clustered output head.
#include "convert/head_clusters.h"

#include <algorithm>

#include "gguf/head_clusters.h"
#include "gguf/metadata_writer.h"

namespace sluice::convert {
const gguf::Tensor* head_of(const gguf::Header& header) {
  constexpr uint64_t kBlock = 32;
  const gguf::Tensor* head = header.find_tensor("output.weight");
  if (head == nullptr) head = header.find_tensor("token_embd.weight");
  const bool plain = head != nullptr && head->cols() % kBlock == 0 && head->ne[2] == 1 &&
                     head->ne[3] == 1 && head->rows() > 0 &&
                     header.find_tensor("output.bias") == nullptr;
  return plain ? head : nullptr;
}

Status add_clusters(const Source& model, const gguf::Tensor& head, gguf::TensorType to,
                    const std::vector<float>* importance, ChunkMaker* maker, gguf::Header* header) {
  const Result<KMeansClusters> found =
      find_clusters(model, head, to, importance, kHeadGrouping, maker);
  if (!found.ok()) return found.status();
  drop_clusters(header);
  gguf::add_keys(header, [&](gguf::MetadataWriter& writer) {
    writer.bytes(gguf::kHeadClusterOf, found->of);
    writer.bytes(gguf::kHeadCentres, found->centres);
    writer.floats(gguf::kHeadRadii, found->radii);
    writer.number(gguf::kHeadType, static_cast<uint32_t>(to));
  });
  return {};
}

RowOrder order_by_cluster(const gguf::Header& header) {
  const gguf::Value* of = header.find(gguf::kHeadClusterOf);
  RowOrder out(of == nullptr ? 0 : of->bytes.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(i);
  std::stable_sort(out.begin(), out.end(), [of](int32_t a, int32_t b) {
    return of->bytes[static_cast<size_t>(a)] < of->bytes[static_cast<size_t>(b)];
  });
  return out;
}

void drop_clusters(gguf::Header* header) {
  std::erase_if(header->metadata, [](const gguf::KeyValue& kv) {
    return kv.key == gguf::kHeadClusterOf || kv.key == gguf::kHeadCentres ||
           kv.key == gguf::kHeadRadii || kv.key == gguf::kHeadType;
  });
}

}  // namespace sluice::convert
