// Output vectors in clusters, for a head of which a token multiplies a part
// (model/head_clusters.h).
#pragma once

#include "convert/kmeans.h"

namespace sluice::convert {

// Twice as many as others at most: a centre that is the mean of many is shorter and so nearer to
// most vectors, until a few clusters have everything.
inline constexpr Grouping kHeadGrouping = {.min_members = 4, .max_over_even = 2};

// The tensor that makes logits; null: none that can be clustered.
[[nodiscard]] const gguf::Tensor* head_of(const gguf::Header& header);

// Finds clusters of `head` as it will be in the file, of type `to`, and adds what the file is to
// say of them to `header`. Errors: find_clusters'.
[[nodiscard]] Status add_clusters(const Source& model, const gguf::Tensor& head,
                                  gguf::TensorType to, const std::vector<float>* importance,
                                  ChunkMaker* maker, gguf::Header* header);

// The vectors by cluster, and in each by token, as such a header says.
[[nodiscard]] RowOrder order_by_cluster(const gguf::Header& header);

// Takes out what a header says of clusters.
void drop_clusters(gguf::Header* header);

}  // namespace sluice::convert
