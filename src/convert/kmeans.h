// Vectors of a matrix in clusters: Lloyd's iterations over a sample of them, then one look at all.
#pragma once

#include "convert/chunks.h"

namespace sluice::convert {

struct KMeansClusters {
  std::string of;            // by vector, a byte
  std::string centres;       // rows of Q8_0
  std::vector<float> radii;  // no vector is further from its centre
};

struct Grouping {
  uint64_t min_members;    // of a cluster, on average; there are at most 256
  uint64_t max_over_even;  // no cluster has more times what all would have alike; 0: it may
};

// What finding them holds.
[[nodiscard]] uint64_t clustering_memory(const gguf::Tensor& tensor, const Grouping& grouping);
// What a file says of them, in bytes, at most.
[[nodiscard]] uint64_t clusters_bytes(const gguf::Tensor& tensor, const Grouping& grouping);

// KMeansClusters of the rows of `tensor`, which are whole blocks of 32, as a file of this type has
// them. Which vector goes where may differ in the last bits from one instruction set to another;
// the radii hold on each. Errors: ChunkMaker's.
[[nodiscard]] Result<KMeansClusters> find_clusters(const Source& model, const gguf::Tensor& tensor,
                                                   gguf::TensorType type,
                                                   const std::vector<float>* importance,
                                                   const Grouping& grouping, ChunkMaker* maker);

}  // namespace sluice::convert
