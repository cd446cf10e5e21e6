// Rows of the embedding as the centre of a cluster and a rest of fewer bits, which a file may have
// in place of token_embd.weight: `sluice convert --cluster-embedding` writes them, into QSF files
// alone, since no other program knows them.
#pragma once

#include <string_view>

#include "gguf/gguf.h"

namespace sluice::gguf {

inline constexpr std::string_view kEmbeddingRest = "token_embd_rest.weight";  // row less centre
inline constexpr std::string_view kEmbeddingClusterOf = "sluice.embedding.cluster";  // u8 by token
// Rows of Q8_0, a cluster's centre each; u8.
inline constexpr std::string_view kEmbeddingCentres = "sluice.embedding.centres";

// Of views of a header.
struct EmbeddingClusters {
  Bytes of, centres;
  uint64_t cols = 0;

  // x += sign * the centres of values [first, first + n) of the embedding; first and n are whole
  // blocks of 32.
  void add(uint64_t first, uint64_t n, float sign, float* x) const;
};

// As a header has them for `rest`. Errors: kBadHeader, naming the key.
[[nodiscard]] Result<EmbeddingClusters> embedding_clusters(const Header& header,
                                                           const Tensor& rest);

}  // namespace sluice::gguf
