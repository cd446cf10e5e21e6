// Distances between model outputs: next-token distributions or embeddings.
#pragma once

#include <span>

namespace sluice::measure {

// The logarithm of the sum of exp(logit): a token's log probability is its logit less this.
[[nodiscard]] double log_of_sum(std::span<const float> logits);

// KL divergence D(p || q) in nats of the distributions given by two rows of logits, equal in size.
[[nodiscard]] double divergence(std::span<const float> p, std::span<const float> q);

// Replaces logits by log probabilities.
void to_log_probabilities(std::span<float> row);
// KL divergence in nats of the distribution given by `logits` from the one given by log_p. Computed
// from differences, so that tiny divergences keep their digits. Tokens below a probability of e^-25
// are ignored.
[[nodiscard]] double divergence_from(std::span<const float> log_p, std::span<const float> logits);

[[nodiscard]] double cosine(std::span<const float> a, std::span<const float> b);
// Squared difference divided by the squared norm of `whole`.
[[nodiscard]] double share_of_change(std::span<const float> whole, std::span<const float> made);

}  // namespace sluice::measure
