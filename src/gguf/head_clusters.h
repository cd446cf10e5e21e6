// Metadata keys of a clustered output head. The rows of the output matrix are grouped into
// clusters, so that logits can be computed for a few clusters only: an approximate lm_head. `sluice
// convert
// --cluster-head` writes them.
#pragma once

#include <string_view>

namespace sluice::gguf {

inline constexpr std::string_view kHeadClusterOf = "sluice.head.cluster";  // u8 by token
// A Q8_0 row per cluster, its centre; stored as u8.
inline constexpr std::string_view kHeadCentres = "sluice.head.centres";
// f32 per cluster: the largest distance of its rows from the centre.
inline constexpr std::string_view kHeadRadii = "sluice.head.radii";
// A copy of the output matrix, its rows sorted by cluster and then by token, so that a forward pass
// reads contiguous rows. QSF files only: llama.cpp rejects files with unknown tensors.
inline constexpr std::string_view kHeadByCluster = "output_by_cluster.weight";
inline constexpr std::string_view kHeadType = "sluice.head.type";  // ggml's type id of the rows

}  // namespace sluice::gguf
