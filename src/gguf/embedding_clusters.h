// A clustered token embedding: each row is the centre of its cluster plus a residual of fewer bits.
// A file may have it in place of token_embd.weight. `sluice convert --cluster-embedding` writes it,
// into QSF files only, since no other program reads it.
#pragma once

#include <string_view>

#include "gguf/gguf.h"

namespace sluice::gguf {

inline constexpr std::string_view kEmbeddingRest = "token_embd_rest.weight";  // row minus centre
inline constexpr std::string_view kEmbeddingClusterOf = "sluice.embedding.cluster";  // u8 by token
// A Q8_0 row per cluster, its centre; stored as u8.
inline constexpr std::string_view kEmbeddingCentres = "sluice.embedding.centres";

// The clusters, as views into a header.
struct EmbeddingClusters {
  Bytes of, centres;
  uint64_t cols = 0;

  // Adds sign * the centres of values [first, first + n) of the embedding to x. `first` and `n` are
  // multiples of the block size, 32.
  void add(uint64_t first, uint64_t n, float sign, float* x) const;
};

// Reads the clusters of the residual tensor `rest`. Errors: kBadHeader, naming the key.
[[nodiscard]] Result<EmbeddingClusters> embedding_clusters(const Header& header,
                                                           const Tensor& rest);

}  // namespace sluice::gguf
