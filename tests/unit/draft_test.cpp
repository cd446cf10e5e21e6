// The n-gram suffix index compared with a search through the whole text, and the number of draft
// tokens that a pass verifies, for known latencies and probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "draft/ngram.h"
#include "draft/policy.h"

namespace sluice::draft {
namespace {

// Length of the longest match of the text's end with an earlier position, by brute force.
int32_t longest_match(const std::vector<Token>& text, int32_t* from) {
  const int32_t n = static_cast<int32_t>(text.size());
  int32_t best = 0;
  for (int32_t at = n - 2; at >= 0; --at) {
    int32_t same = 0;
    while (same <= at && same < NgramIndex::kLongestMatch &&
           text[static_cast<size_t>(at - same)] == text[static_cast<size_t>(n - 1 - same)]) {
      ++same;
    }
    if (same > best) {
      best = same;
      *from = at + 1;
    }
  }
  return best;
}

TEST(NgramIndex, FindsTheLongestMatchAndWhatFollowed) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    NgramIndex index;
    ASSERT_TRUE(index.allocate(400).ok());
    std::vector<Token> text;
    // Texts that repeat parts of themselves; so many pairs that no hash chain is truncated.
    while (text.size() < 300) {
      if (text.size() > 10 && random() % 4 == 0) {
        const size_t at = random() % (text.size() - 5), n = 1 + random() % 12;
        for (size_t i = 0; i < n; ++i) text.push_back(text[at + i]);
      } else {
        text.push_back(static_cast<Token>(random() % 40));
      }
    }
    std::vector<Token> so_far;
    for (const Token token : text) {
      so_far.push_back(token);
      index.push(token);
      ASSERT_TRUE(std::ranges::equal(index.tokens(), so_far));
      Token guess[9];
      std::fill_n(guess, 9, -1);
      int32_t from = 0;
      const int32_t expected = longest_match(so_far, &from);
      const int32_t found = index.propose(guess);
      if (expected < NgramIndex::kMinMatch) {
        ASSERT_EQ(found, 0);
        ASSERT_EQ(guess[0], -1);
        continue;
      }
      ASSERT_EQ(found, expected);
      std::vector<Token> longer = so_far;
      for (size_t i = 0; i < 9; ++i) {
        ASSERT_EQ(guess[i], longer[static_cast<size_t>(from) + i]) << i;
        longer.push_back(guess[i]);
      }
    }
  }
}

TEST(NgramIndex, ALongTextDropsItsOlderHalf) {
  NgramIndex index;
  ASSERT_TRUE(index.allocate(100).ok());
  std::vector<Token> text;
  for (Token t = 0; t < 1000; ++t) {
    text.push_back(t % 37);
    index.push(text.back());
    const auto held = index.tokens();
    ASSERT_GE(held.size(), std::min<size_t>(text.size(), 50));
    ASSERT_LE(held.size(), 101u);
    ASSERT_TRUE(std::equal(held.rbegin(), held.rend(), text.rbegin()));
    if (text.size() < 80) continue;
    Token guess[3];
    ASSERT_GT(index.propose(guess), 10);
    EXPECT_EQ(guess[0], (t + 1) % 37);
    EXPECT_EQ(guess[2], (t + 3) % 37);
  }
  EXPECT_LE(NgramIndex::memory_bytes(1 << 30), uint64_t{4} << 20);
}

TEST(BatchLatency, InterpolatesAndExtrapolates) {
  BatchLatency costs;
  EXPECT_LT(costs.estimate(1), costs.estimate(8));
  costs.note(1, 10);
  EXPECT_EQ(costs.estimate(1), 10);
  EXPECT_GT(costs.estimate(4), 10);
  EXPECT_LT(costs.estimate(4), 20);
  for (int i = 0; i < 50; ++i) costs.note(8, 40);
  EXPECT_NEAR(costs.estimate(8), 40, 1e-3);
  EXPECT_GT(costs.estimate(4), 10);
  EXPECT_LT(costs.estimate(4), 40);
  EXPECT_GE(costs.estimate(12), 40);
  EXPECT_NEAR(costs.estimate(12), 40 + 4 * 30.0 / 7, 1);  // as between measured lengths
  costs.note(4, 1000);  // delayed once: a longer pass costs less than that
  EXPECT_LE(costs.estimate(4), 40);
  for (int n = 1; n < kMaxPass; ++n) EXPECT_LE(costs.estimate(n), costs.estimate(n + 1)) << n;
  costs.note(0, 5);
  costs.note(kMaxPass + 1, 5);
  costs.note(3, -1);
  costs.note(1, NAN);
  EXPECT_NEAR(costs.estimate(1), 10, 0.5);
  costs.clear();
  EXPECT_EQ(costs.estimate(1), BatchLatency().estimate(1));
  EXPECT_FALSE(costs.measured());
}

TEST(BatchLatency, ASlowerMachineIsSlowerAtAllLengths) {
  BatchLatency costs;
  costs.note(1, 10);
  costs.note(4, 20);
  for (int i = 0; i < 100; ++i) costs.note(4, 40);
  EXPECT_NEAR(costs.estimate(4), 40, 0.1);
  EXPECT_GT(costs.estimate(1), 10.5);
  EXPECT_LT(costs.estimate(1), 15);
}

TEST(AcceptanceStats, FollowsTheAcceptanceRate) {
  AcceptanceStats trust;
  int32_t before = 0;
  for (int32_t n = NgramIndex::kMinMatch; n < 100; ++n) {
    const int32_t level = AcceptanceStats::of_match(n);
    EXPECT_GE(level, before);
    EXPECT_LT(level, AcceptanceStats::kLevels);
    before = level;
  }
  EXPECT_EQ(before, AcceptanceStats::kLevels - 1);
  EXPECT_EQ(AcceptanceStats::of_probability(0), 0);
  EXPECT_EQ(AcceptanceStats::of_probability(1), AcceptanceStats::kLevels - 1);
  EXPECT_GE(AcceptanceStats::of_probability(NAN), 0);
  for (int i = 0; i < 200; ++i) trust.note(3, i % 4 != 0);
  EXPECT_NEAR(trust.chance(3), 0.75, 0.1);
  for (int i = 0; i < 200; ++i) trust.note(3, false);
  EXPECT_LT(trust.chance(3), 0.02);
  EXPECT_LT(trust.chance(AcceptanceStats::kAny), 0.02);
  AcceptanceStats settled = trust;  // a few draft tokens outweigh the past without erasing it
  settled.settle();
  EXPECT_EQ(settled.chance(3), trust.chance(3));
  for (int i = 0; i < 4; ++i) settled.note(3, true), trust.note(3, true);
  EXPECT_GT(settled.chance(3), 0.5);
  EXPECT_LT(trust.chance(3), 0.25);
  trust.hope();
  EXPECT_GE(trust.chance(AcceptanceStats::kAny), 0.7);
}

// Latency of a pass: first + each * (tokens - 1).
BatchLatency linear(double first, double each) {
  BatchLatency costs;
  for (int32_t n = 1; n <= kMaxPass; ++n) costs.note(n, first + each * (n - 1));
  return costs;
}

int32_t length(const BatchLatency& costs, std::span<const double> chances, const Setting& setting) {
  return best_length(costs, chances, setting).length;
}

TEST(BestLength, MaximizesThroughput) {
  const std::vector<double> sure(15, 1.0), never(15, 0.0), even(15, 0.5);
  const BatchLatency flat = linear(100, 1), steep = linear(10, 9), free = linear(10, 0);
  EXPECT_EQ(length(flat, sure, {}), 15);
  EXPECT_EQ(length(flat, never, {}), 0);
  EXPECT_EQ(length(flat, {}, {}), 0);
  EXPECT_EQ(length(free, even, {}), 15);
  EXPECT_EQ(length(steep, even, {}), 0);
  const int32_t some = length(linear(10, 1), even, {});
  EXPECT_GT(some, 0);
  EXPECT_LT(some, 6);
  // If drafting takes time, or a rejected draft costs a recomputation, tokens must be more
  // probable.
  EXPECT_LT(length(linear(10, 1), even, {.each_ms = 2}), some);
  EXPECT_LE(length(linear(10, 3), even, {.redone = true}), length(linear(10, 3), even, {}));
  // If other sequences gain a token in the same pass, draft tokens must pay for all of them.
  EXPECT_LE(length(linear(10, 3), even, {.beside = 7}), length(linear(10, 3), even, {}));
  EXPECT_EQ(length(flat, sure, {.beside = 7}), 15);
  // Compared with every length, by definition.
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const double each = static_cast<double>(random() % 100) / 10;
    const BatchLatency costs = linear(10, each);
    std::vector<double> chances(random() % 16);
    for (double& c : chances) c = static_cast<double>(random() % 101) / 100;
    const auto rate = [&](int32_t n) {
      double said = 1, right = 1;
      for (int32_t i = 0; i < n; ++i) said += right *= chances[static_cast<size_t>(i)];
      return said / (10 + each * n);
    };
    const int32_t chosen = length(costs, chances, {});
    for (int32_t n = 1; n <= static_cast<int32_t>(chances.size()); ++n) {
      if (chosen > 0) {
        EXPECT_GE(rate(chosen), rate(n) - 1e-9);
      } else {
        EXPECT_LE(rate(n), 1.03 / 10 + 1e-9);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::draft
