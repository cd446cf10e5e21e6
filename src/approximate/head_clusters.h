// Clustered output head: an approximate lm_head. Tokens are grouped into clusters. Logits are
// computed only for the most promising clusters; every other token gets the expected logit of its
// cluster. A cluster's promise is the logit of its centre plus the expected maximum over that many
// vectors at that distance; ranking by the centre alone misses the likeliest token ten times as
// often. By Cauchy-Schwarz no token's logit exceeds its centre's by more than the cluster's radius
// times the length of the input. This bound shows whether the largest logit has been found.
// `sluice convert --cluster-head` writes clusters (gguf/head_clusters.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "session/approximation.h"

namespace sluice::approximate {

struct HeadClusters {
  int32_t most = 0;    // clusters to multiply; 0: the whole head, and no other field is set
  bool exact = false;  // add clusters until the largest logit is found
  std::vector<uint8_t> centres;       // [n][n_embd / 32] blocks of Q8_0
  std::vector<float> radii, lengths;  // [n]; lengths of the centres
  std::vector<float> reaches;         // [n]; expected maximum over the cluster's vectors, see above
  std::vector<int32_t> tokens;        // [n_vocab], by cluster
  std::vector<int32_t> first;         // [n + 1]: start of each cluster in `tokens`
  // The head's rows are stored in the order of `tokens`, so each cluster can be read by itself.
  bool in_order = false;

  [[nodiscard]] int32_t n() const { return static_cast<int32_t>(radii.size()); }
  // Fraction of the head that each token multiplies, if all clusters had the same size.
  [[nodiscard]] double share() const {
    return most > 0 && !exact ? static_cast<double>(most) / n() : 1;
  }
  [[nodiscard]] uint64_t bytes() const {
    return centres.size() +
           4 * (3 * radii.size() + (in_order ? 2 : 1) * tokens.size() + first.size());
  }
};

// Reads the clusters from the header. Errors: kInvalidArgument if the file has none or the model's
// head is not a plain matrix multiplication; kBadHeader, naming the key.
[[nodiscard]] Result<HeadClusters> read_head_clusters(const gguf::Header& header,
                                                      const model::Program& program,
                                                      const session::HeadPolicy& policy,
                                                      double skip_layers_ratio);
// The operation that computes the logits, if it multiplies a single matrix; else null.
[[nodiscard]] const model::Op* plain_head(const model::Program& program);

}  // namespace sluice::approximate
