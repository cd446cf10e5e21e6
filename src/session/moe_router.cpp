// Chooses experts for one token, and groups tokens by expert.
#include "session/moe_router.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

namespace sluice::session {
namespace {

constexpr float kTaken = -std::numeric_limits<float>::infinity();
constexpr float kExcluded = -FLT_MAX;       // below every score; above -inf, which marks taken ones
constexpr float kMinSum = 6.103515625e-5f;  // smallest divisor when normalizing weights

float exponential(float x) {
  return static_cast<float>(std::exp(static_cast<double>(x)));
}

// The first of the largest scores that are not taken.
int32_t best_of(const float* scores, int32_t n) {
  int32_t best = -1;
  for (int32_t i = 0; i < n; ++i) {
    if (scores[i] != kTaken && (best < 0 || scores[i] > scores[best])) best = i;
  }
  return best;
}

// Excludes all scores but those of the groups whose two best experts have the largest sums. `sums`
// [n_group].
void keep_best_groups(const model::Moe& moe, float* scores, float* sums) {
  const int32_t size = moe.n_expert / moe.n_group;
  for (int32_t g = 0; g < moe.n_group; ++g) {
    float first = kTaken, second = kTaken;
    for (int32_t i = g * size; i < (g + 1) * size; ++i) {
      second = std::max(second, std::min(first, scores[i]));
      first = std::max(first, scores[i]);
    }
    sums[g] = std::max(size > 1 ? first + second : first, kExcluded);
  }
  for (int32_t k = 0; k < moe.n_group_used; ++k) sums[best_of(sums, moe.n_group)] = kTaken;
  for (int32_t g = 0; g < moe.n_group; ++g) {
    if (sums[g] != kTaken) std::fill_n(scores + g * size, size, kExcluded);
  }
}

// Softmax over the chosen experts' logits, which `weight` holds so far.
void softmax_of_chosen(int32_t n, Choice* chosen) {
  float largest = chosen[0].weight, sum = 0;
  for (int32_t k = 1; k < n; ++k) largest = std::max(largest, chosen[k].weight);
  for (int32_t k = 0; k < n; ++k) {
    chosen[k].weight = exponential(chosen[k].weight - largest);
    sum += chosen[k].weight;
  }
  for (int32_t k = 0; k < n; ++k) chosen[k].weight /= sum;
}

// If several choices are the same expert, the first of them gets all their weight.
void merge_equal(int32_t n, Choice* chosen) {
  for (int32_t k = 1; k < n; ++k) {
    for (int32_t j = 0; j < k; ++j) {
      if (chosen[j].expert != chosen[k].expert) continue;
      chosen[j].weight += chosen[k].weight;
      chosen[k].expert = -1;
      break;
    }
  }
}

}  // namespace

void choose_experts(const model::Moe& moe, const kernels::Table& table, const float* logits,
                    const float* bias, float* room, Choice* out) {
  const int32_t n = moe.n_expert;
  float *weights = room, *scores = room + n;
  std::copy(logits, logits + n, weights);
  if (moe.gating == model::Gating::kSoftmax) table.softmax(weights, n, weights);
  if (moe.gating == model::Gating::kSigmoid) {
    std::for_each(weights, weights + n, [](float& x) { x = 1 / (1 + exponential(-x)); });
  }
  for (int32_t e = 0; e < n; ++e) {
    const float score = bias == nullptr ? weights[e] : weights[e] + bias[e];
    scores[e] = score > kExcluded ? score : kExcluded;  // NaN becomes kExcluded too
  }
  if (moe.n_group > 1) keep_best_groups(moe, scores, scores + n);
  float sum = 0;
  for (int32_t k = 0; k < moe.n_used; ++k) {
    const int32_t e = best_of(scores, n);
    scores[e] = kTaken;
    out[k] = {e / moe.shared_by, weights[e / moe.shared_by]};
    sum += out[k].weight;
  }
  if (moe.gating == model::Gating::kSoftmaxChosen) softmax_of_chosen(moe.n_used, out);
  const float by = moe.weights_scale / (moe.normalize ? std::max(sum, kMinSum) : 1);
  for (int32_t k = 0; k < moe.n_used; ++k) out[k].weight *= by;
  if (moe.shared_by > 1) merge_equal(moe.n_used, out);
}

int32_t group_by_expert(const Choice* choices, int32_t n_tokens, int32_t n_used, int32_t n_experts,
                        Routed* routed, ExpertRun* runs) {
  const int32_t n = n_tokens * n_used;
  std::fill_n(runs, n_experts, ExpertRun{});
  for (int32_t i = 0; i < n; ++i) {
    if (choices[i].expert >= 0) ++runs[choices[i].expert].count;
  }
  int32_t first = 0;
  for (int32_t e = 0; e < n_experts; ++e) {
    const int32_t count = runs[e].count;
    runs[e] = {e, first, 0};
    first += count;
  }
  for (int32_t i = 0; i < n; ++i) {
    if (choices[i].expert < 0) continue;
    ExpertRun& run = runs[choices[i].expert];
    routed[run.first + run.count++] = {i / n_used, choices[i].weight};
  }
  ExpertRun* end =
      std::remove_if(runs, runs + n_experts, [](const auto& r) { return r.count == 0; });
  return static_cast<int32_t>(end - runs);
}

}  // namespace sluice::session
