// The output head in clusters, where the caller asks for less than all of its products: a token's
// logits are computed for the clusters that promise most, and the other tokens get what is to be
// expected of their cluster. One promises its centre's logit and what the best of so many vectors,
// spread so far in all directions, would have beyond it; the centre alone misses the likeliest
// token ten times as often. By Cauchy and Schwarz no token of a cluster is above its centre's logit
// by more than the radius times the length of what is multiplied, which tells whether the largest
// logit has been found. `sluice convert --cluster-head` writes clusters (gguf/head_clusters.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::model {

struct Program;

inline constexpr int32_t kMaxClusters = 256;

// How much of the head is multiplied.
struct HeadPolicy {
  enum class Kind : uint8_t {
    kByRatio,  // all of it where no layers are skipped or the file has no clusters, else a few
               // clusters
    kWhole,
    kSome,   // so many clusters
    kExact,  // as many as it takes to know the largest logit
  } kind = Kind::kByRatio;
  int32_t clusters = 8;
};

// "" (by skip_layers_ratio), "off", "exact", or a number of clusters. kInvalidArgument for others.
[[nodiscard]] Result<HeadPolicy> parse_head_policy(std::string_view text);

struct HeadClusters {
  int32_t most = 0;    // clusters that are multiplied; 0: all tokens are, and nothing else is set
  bool exact = false;  // and further ones until the largest logit is known
  std::vector<uint8_t> centres;       // [n][n_embd / 32] blocks of Q8_0
  std::vector<float> radii, lengths;  // [n]; lengths of the centres
  std::vector<float> reaches;         // [n]; what is expected of the best vector, see above
  std::vector<int32_t> tokens;        // [n_vocab], by cluster
  std::vector<int32_t> first;         // [n + 1]: where each one's begin
  // Rows of the head lie in the file as `tokens` do, so that those of a cluster are read alone.
  bool in_order = false;

  [[nodiscard]] int32_t n() const { return static_cast<int32_t>(radii.size()); }
  // Of the head's products those that a token needs at least, were all clusters as large.
  [[nodiscard]] double share() const {
    return most > 0 && !exact ? static_cast<double>(most) / n() : 1;
  }
  [[nodiscard]] uint64_t bytes() const {
    return centres.size() +
           4 * (3 * radii.size() + (in_order ? 2 : 1) * tokens.size() + first.size());
  }
};

#if defined(__wasm__)
inline constexpr bool kHeadInOrder = false;  // a tab's engine is held to a size
#else
inline constexpr bool kHeadInOrder = true;
#endif
// Where a part of the head is multiplied and the file has it by cluster too, has the program
// multiply that one. Errors: kBadHeader. Natively alone.
[[nodiscard]] Status take_head_in_order(const gguf::Header& header, HeadClusters* clusters,
                                        Program* program);

// As the file has them, for such a head. Errors: kInvalidArgument where it has none, or the model's
// head is not one of plain products; kBadHeader, naming the key.
[[nodiscard]] Result<HeadClusters> read_head_clusters(const gguf::Header& header,
                                                      const Program& program,
                                                      const HeadPolicy& policy,
                                                      double skip_layers_ratio);

}  // namespace sluice::model
