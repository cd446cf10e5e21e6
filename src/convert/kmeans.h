// Clusters the rows of a matrix: Lloyd's iterations over a sample, then one pass over all rows.
#pragma once

#include "convert/chunks.h"

namespace sluice::convert {

struct KMeansClusters {
  std::string of;            // cluster of each vector, one byte each
  std::string centres;       // Q8_0 rows
  std::vector<float> radii;  // maximum distance of a member from its centre
};

struct Grouping {
  uint64_t min_members;    // minimum average cluster size; there are at most 256 clusters
  uint64_t max_over_even;  // maximum cluster size as a multiple of the average; 0: no limit
};

// Bytes that find_clusters holds.
[[nodiscard]] uint64_t clustering_memory(const gguf::Tensor& tensor, const Grouping& grouping);
// Maximum bytes of the cluster metadata in a file.
[[nodiscard]] uint64_t clusters_bytes(const gguf::Tensor& tensor, const Grouping& grouping);

// Clusters the rows of `tensor`, whose length is a multiple of 32, with the values that a file of
// type `type` has. Assignments may differ between instruction sets by rounding; the radii are valid
// on each. Errors: those of ChunkMaker.
[[nodiscard]] Result<KMeansClusters> find_clusters(const Source& model, const gguf::Tensor& tensor,
                                                   gguf::TensorType type,
                                                   const std::vector<float>* importance,
                                                   const Grouping& grouping, ChunkMaker* maker);

}  // namespace sluice::convert
