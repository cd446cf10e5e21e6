// What a file says of its output vectors, by the keys under which it does: they lie in clusters, so
// that products can be left to the tokens of a few. `sluice convert --cluster-head` finds them.
#pragma once

#include <string_view>

namespace sluice::gguf {

inline constexpr std::string_view kHeadClusterOf = "sluice.head.cluster";  // u8 by token
// Rows of Q8_0, a cluster's centre each; u8.
inline constexpr std::string_view kHeadCentres = "sluice.head.centres";
// f32 by cluster: no vector of it is further from the centre.
inline constexpr std::string_view kHeadRadii = "sluice.head.radii";
// The output vectors once more, by cluster and in each by token: what a pass reads of them then
// lies together. Only in QSF files, since llama.cpp takes no tensor that it does not know.
inline constexpr std::string_view kHeadByCluster = "output_by_cluster.weight";
inline constexpr std::string_view kHeadType = "sluice.head.type";  // of the vectors; ggml's number

}  // namespace sluice::gguf
