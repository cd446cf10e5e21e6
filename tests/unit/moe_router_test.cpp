// The expert router compared with the papers' formulas in double precision, over every combination
// of options, and the lists of tokens by expert.
#include "session/moe_router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace sluice::session {
namespace {

using model::Gating;
using model::Moe;

struct Reference {
  std::vector<int32_t> experts;  // best first
  std::vector<double> weights;
};

std::vector<double> softmax(std::vector<double> x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - largest);
  for (double& v : x) v /= sum;
  return x;
}

std::vector<int32_t> order_of(const std::vector<double>& scores) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  return order;
}

Reference reference(const Moe& moe, const std::vector<float>& logits,
                    const std::vector<float>& bias) {
  std::vector<double> p(logits.begin(), logits.end());
  if (moe.gating == Gating::kSoftmax) p = softmax(p);
  if (moe.gating == Gating::kSigmoid) {
    for (double& x : p) x = 1 / (1 + std::exp(-x));
  }
  std::vector<double> scores = p;
  for (size_t e = 0; e < bias.size(); ++e) scores[e] += static_cast<double>(bias[e]);
  const size_t size = scores.size() / static_cast<size_t>(moe.n_group);
  std::vector<double> groups;
  for (auto at = scores.begin(); at != scores.end(); at += static_cast<int64_t>(size)) {
    std::vector<double> group(at, at + static_cast<int64_t>(size));
    std::sort(group.rbegin(), group.rend());
    groups.push_back(size > 1 ? group[0] + group[1] : group[0]);
  }
  std::vector<int32_t> kept = order_of(groups);
  kept.resize(static_cast<size_t>(moe.n_group_used));
  Reference out;
  for (const int32_t e : order_of(scores)) {
    const bool open = std::count(kept.begin(), kept.end(), e / static_cast<int32_t>(size)) > 0;
    if (open && out.experts.size() < static_cast<size_t>(moe.n_used)) {
      out.experts.push_back(e);
      out.weights.push_back(p[static_cast<size_t>(e)]);
    }
  }
  if (moe.gating == Gating::kSoftmaxChosen) out.weights = softmax(out.weights);
  double by = static_cast<double>(moe.weights_scale);
  if (moe.normalize) by /= std::accumulate(out.weights.begin(), out.weights.end(), 0.0);
  for (double& w : out.weights) w *= by;
  return out;
}

std::vector<Choice> choose(const Moe& moe, const std::vector<float>& logits,
                           const std::vector<float>& bias) {
  std::vector<float> room(3 * logits.size());
  std::vector<Choice> out(static_cast<size_t>(moe.n_used));
  choose_experts(moe, kernels::best(), logits.data(), bias.empty() ? nullptr : bias.data(),
                 room.data(), out.data());
  return out;
}

std::vector<float> random_values(std::mt19937& random, int32_t n, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = normal(random);
  return out;
}

TEST(MoeRouter, EveryCombinationMatchesThePapers) {
  std::mt19937 random(16);
  int cases = 0;
  for (const Gating gating : {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxChosen}) {
    for (const bool normalize : {false, true}) {
      for (const bool biased : {false, true}) {
        for (const int32_t n_group : {1, 4, 16}) {
          for (const int32_t n_used : {1, 3, 8}) {
            Moe moe;
            moe.n_expert = 16;
            moe.n_used = n_used;
            moe.n_group = n_group;
            moe.n_group_used = n_group == 1 ? 1 : n_group / 2;
            moe.gating = gating;
            moe.normalize = normalize && gating != Gating::kSoftmaxChosen;
            moe.weights_scale = normalize ? 2.5f : 1.0f;
            for (int i = 0; i < 20; ++i) {
              const std::vector<float> logits = random_values(random, 16, 2);
              const std::vector<float> bias =
                  biased ? random_values(random, 16, 0.3f) : std::vector<float>{};
              const Reference expected = reference(moe, logits, bias);
              const std::vector<Choice> ours = choose(moe, logits, bias);
              ASSERT_EQ(expected.experts.size(), ours.size());
              for (size_t k = 0; k < ours.size(); ++k) {
                EXPECT_EQ(ours[k].expert, expected.experts[k]) << cases;
                EXPECT_NEAR(ours[k].weight, expected.weights[k], 1e-5) << cases;
              }
              ++cases;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(cases, 3 * 2 * 2 * 3 * 3 * 20);
}

// The choice is always of different, existing experts; ties go to the first.
TEST(MoeRouter, NanStillChoosesExperts) {
  Moe moe;
  moe.n_expert = 8;
  moe.n_used = 5;
  moe.n_group = 4;
  moe.n_group_used = 3;
  for (const float x : {std::nanf(""), std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity(), 0.0f}) {
    for (const Gating gating : {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxChosen}) {
      moe.gating = gating;
      std::vector<int32_t> seen;
      for (const Choice& c : choose(moe, std::vector<float>(8, x), {})) {
        ASSERT_TRUE(c.expert >= 0 && c.expert < 8);
        seen.push_back(c.expert);
      }
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, (std::vector<int32_t>{0, 1, 2, 3, 4})) << x;
    }
  }
}

// An expert that several logits stand for runs once per token, with the sum of the weights.
TEST(MoeRouter, AnExpertOfSeveralLogitsRunsOnce) {
  Moe moe;
  moe.n_expert = 6;
  moe.n_used = 4;
  moe.shared_by = 2;
  moe.gating = Gating::kSigmoid;
  const std::vector<float> logits = {3, 2, -5, 1, -6, 0.5f};
  const std::vector<Choice> ours = choose(moe, logits, {});
  std::vector<Routed> routed(4);
  std::vector<ExpertRun> runs(3);
  ASSERT_EQ(group_by_expert(ours.data(), 1, 4, 3, routed.data(), runs.data()), 3);
  double sum = 0;
  for (const ExpertRun& run : runs) {
    EXPECT_EQ(run.count, 1) << run.expert;
    sum += static_cast<double>(routed[static_cast<size_t>(run.first)].weight);
  }
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST(MoeRouter, TokensAreListedByExpertInOrder) {
  const Choice choices[] = {{5, 0.5f}, {1, 0.25f}, {1, 1.0f}, {3, 2.0f}, {5, 3.0f}, {3, 4.0f}};
  Routed routed[6];
  ExpertRun runs[7];
  ASSERT_EQ(group_by_expert(choices, 3, 2, 7, routed, runs), 3);
  const struct {
    int32_t expert;
    std::vector<std::pair<int32_t, float>> tokens;
  } expected[] = {
      {1, {{0, 0.25f}, {1, 1.0f}}}, {3, {{1, 2.0f}, {2, 4.0f}}}, {5, {{0, 0.5f}, {2, 3.0f}}}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(runs[i].expert, expected[i].expert);
    ASSERT_EQ(runs[i].count, static_cast<int32_t>(expected[i].tokens.size()));
    for (int32_t k = 0; k < runs[i].count; ++k) {
      EXPECT_EQ(routed[runs[i].first + k].token, expected[i].tokens[static_cast<size_t>(k)].first);
      EXPECT_EQ(routed[runs[i].first + k].weight,
                expected[i].tokens[static_cast<size_t>(k)].second);
    }
  }
}

}  // namespace
}  // namespace sluice::session
