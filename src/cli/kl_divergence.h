// How far answers are from each other: distributions of the next token, or vectors.
#pragma once

#include <span>

namespace sluice::cli {

// Of the distribution that the second logits give from the first's, in nats.
[[nodiscard]] double divergence(std::span<const float> p, std::span<const float> q);

// Logits to logarithms of probabilities.
void to_log_probabilities(std::span<float> row);
// The divergence of the distribution that `logits` give, by its difference from log p: what is
// next to nothing keeps its digits, and tokens that are all but impossible are left out.
[[nodiscard]] double divergence_from(std::span<const float> log_p, std::span<const float> logits);

[[nodiscard]] double cosine(std::span<const float> a, std::span<const float> b);
// The power of the difference by the power of `whole`.
[[nodiscard]] double share_of_change(std::span<const float> whole, std::span<const float> made);

}  // namespace sluice::cli
