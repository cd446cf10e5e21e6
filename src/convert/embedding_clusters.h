// The embedding's rows as a cluster's centre and a rest (gguf/embedding_clusters.h).
#pragma once

#include "convert/kmeans.h"
#include "gguf/embedding_clusters.h"

namespace sluice::convert {

// Centres, eight bits a value, are to be few beside the rows; what they leave is to be short.
inline constexpr Grouping kRowGrouping = {.min_members = 64, .max_over_even = 0};

// The embedding of a model whose rows can be taken apart so. Errors: kInvalidArgument, saying why
// not.
[[nodiscard]] Result<const gguf::Tensor*> embedding_of(const gguf::Header& header);

// Finds clusters of the rows of `embedding` and adds to `header` what the file is to say of them.
// Errors: find_clusters'.
[[nodiscard]] Status add_embedding_clusters(const Source& model, const gguf::Tensor& embedding,
                                            ChunkMaker* maker, gguf::Header* header);

}  // namespace sluice::convert
