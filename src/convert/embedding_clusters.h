// Splits each row of the embedding into a cluster centre and a remainder
// (gguf/embedding_clusters.h).
#pragma once

#include "convert/kmeans.h"
#include "gguf/embedding_clusters.h"

namespace sluice::convert {

// Centres take eight bits per value, so they must be few compared with the rows.
inline constexpr Grouping kRowGrouping = {.min_members = 64, .max_over_even = 0};

// The embedding, if its rows can be split. Errors: kInvalidArgument, with the reason.
[[nodiscard]] Result<const gguf::Tensor*> embedding_of(const gguf::Header& header);

// Clusters the rows of `embedding` and adds the metadata to `header`. Errors: those of
// find_clusters.
[[nodiscard]] Status add_embedding_clusters(const Source& model, const gguf::Tensor& embedding,
                                            ChunkMaker* maker, gguf::Header* header);

}  // namespace sluice::convert
