// Output vectors in clusters, for a head of which a token multiplies a part
// (model/head_clusters.h).
#pragma once

#include "convert/pieces.h"

namespace sluice::convert {

// The tensor that makes logits; null: none that can be clustered.
[[nodiscard]] const gguf::Tensor* head_of(const gguf::Header& header);

// What finding clusters holds.
[[nodiscard]] uint64_t cluster_memory(const gguf::Tensor& head);

// What the file says of them, in bytes, at most.
[[nodiscard]] uint64_t cluster_bytes(const gguf::Tensor& head);

// Finds clusters of `head` as it will be in the file, of type `to`, and adds what the file is to
// say of them to `header`. Which vector goes where may differ in the last bits from one instruction
// set to another; the radii hold on each. Errors: PieceMaker's.
[[nodiscard]] Status add_clusters(const Source& model, const gguf::Tensor& head,
                                  gguf::TensorType to, const std::vector<float>* importance,
                                  PieceMaker* maker, gguf::Header* header);

// The vectors by cluster, and in each by token, as such a header says.
[[nodiscard]] RowOrder order_by_cluster(const gguf::Header& header);

// Takes out what a header says of clusters.
void drop_clusters(gguf::Header* header);

}  // namespace sluice::convert
