// Clustered output head: an approximate lm_head. Tokens are grouped into clusters. Logits are
// computed only for the most promising clusters; every other token gets the expected logit of its
// cluster. A cluster's promise is the logit of its centre plus the expected maximum over that many
// vectors at that distance; ranking by the centre alone misses the likeliest token ten times as
// often. By Cauchy-Schwarz no token's logit exceeds its centre's by more than the cluster's radius
// times the length of the input. This bound shows whether the largest logit has been found.
// `sluice convert --cluster-head` writes clusters (gguf/head_clusters.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::model {

struct Program;

inline constexpr int32_t kMaxClusters = 256;

// How much of the output head is multiplied.
struct HeadPolicy {
  enum class Kind : uint8_t {
    kByRatio,  // all of it if no layers are skipped or the file has no clusters, else a few
               // clusters
    kWhole,
    kSome,   // `clusters` clusters
    kExact,  // as many as needed to find the largest logit
  } kind = Kind::kByRatio;
  int32_t clusters = 8;
};

// "" (by skip_layers_ratio), "off", "exact", or a number of clusters. Errors: kInvalidArgument.
[[nodiscard]] Result<HeadPolicy> parse_head_policy(std::string_view text);

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

#if defined(__wasm__)
inline constexpr bool kHeadInOrder = false;  // saves bytes of the binary
#else
inline constexpr bool kHeadInOrder = true;
#endif
// If part of the head is multiplied and the file also stores it in cluster order, makes the program
// use that copy. Errors: kBadHeader. Native builds only.
[[nodiscard]] Status take_head_in_order(const gguf::Header& header, HeadClusters* clusters,
                                        Program* program);

// Reads the clusters from the header. Errors: kInvalidArgument if the file has none or the model's
// head is not a plain matrix multiplication; kBadHeader, naming the key.
[[nodiscard]] Result<HeadClusters> read_head_clusters(const gguf::Header& header,
                                                      const Program& program,
                                                      const HeadPolicy& policy,
                                                      double skip_layers_ratio);

}  // namespace sluice::model
