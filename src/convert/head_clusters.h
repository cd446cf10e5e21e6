// Clusters the output head's rows, so that a token computes only part of the head
// (gguf/head_clusters.h).
#pragma once

#include "convert/kmeans.h"

namespace sluice::convert {

// At most twice the average size. The centre of a large cluster is a mean of many rows, so it is
// shorter and nearer to most rows. Without a limit a few clusters would take everything.
inline constexpr Grouping kHeadGrouping = {.min_members = 4, .max_over_even = 2};

// The output head, if it can be clustered; else null.
[[nodiscard]] const gguf::Tensor* head_of(const gguf::Header& header);

// Clusters the rows of `head` as stored in type `to`, and adds the metadata to `header`. Errors:
// those of find_clusters.
[[nodiscard]] Status add_clusters(const Source& model, const gguf::Tensor& head,
                                  gguf::TensorType to, const std::vector<float>* importance,
                                  ChunkMaker* maker, gguf::Header* header);

// The rows sorted by cluster, then by token, from the metadata in `header`.
[[nodiscard]] RowOrder order_by_cluster(const gguf::Header& header);

// Removes the cluster metadata from `header`.
void drop_clusters(gguf::Header* header);

}  // namespace sluice::convert
