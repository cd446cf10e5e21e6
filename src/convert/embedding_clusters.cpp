// Stores an embedding as cluster centres and remainders.
#include "convert/embedding_clusters.h"

#include "gguf/metadata_writer.h"

namespace sluice::convert {

Result<const gguf::Tensor*> embedding_of(const gguf::Header& header) {
  constexpr uint64_t kBlock = 32;
  const gguf::Tensor* t = header.find_tensor("token_embd.weight");
  if (t != nullptr && t->n_dims == 2 && t->cols() % kBlock == 0 && t->rows() > 0) return t;
  return error(Code::kInvalidArgument,
               "--cluster-embedding needs an embedding whose rows are a multiple of 32 values");
}

Status add_embedding_clusters(const Source& model, const gguf::Tensor& embedding, ChunkMaker* maker,
                              gguf::Header* header) {
  const Result<KMeansClusters> found =
      find_clusters(model, embedding, gguf::TensorType::kF32, nullptr, kRowGrouping, maker);
  if (!found.ok()) return found.status();
  gguf::add_keys(header, [&](gguf::MetadataWriter& writer) {
    writer.bytes(gguf::kEmbeddingClusterOf, found->of);
    writer.bytes(gguf::kEmbeddingCentres, found->centres);
  });
  return {};
}

}  // namespace sluice::convert
