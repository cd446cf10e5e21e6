// The sampler against a plain model of itself (sort everything, in double), statistically for the
// draws and by hand-computed numbers for the penalties.
#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace sluice::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Params plain() {
  Params p;
  p.temperature = 1;
  p.top_k = 0;
  p.top_p = 1;
  p.min_p = 0;
  return p;
}

// The exact distribution: sort all, keep k, softmax, cut by top-p, then by min-p, renormalise.
std::vector<double> exact(const std::vector<float>& logits, const Params& p) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (p.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(p.top_k)));
  std::vector<double> weights;
  double total = 0;
  for (const size_t i : order) {
    weights.push_back(std::exp((double(logits[i]) - double(logits[order[0]])) / p.temperature));
    total += weights.back();
  }
  size_t kept = 0;
  for (double sum = 0; kept < order.size() && (kept == 0 || sum < p.top_p * total); ++kept) {
    sum += weights[kept];
  }
  while (kept > 1 && weights[kept - 1] < p.min_p) --kept;
  total = std::accumulate(weights.begin(), weights.begin() + std::ptrdiff_t(kept), 0.0);
  std::vector<double> result(logits.size(), 0.0);
  for (size_t i = 0; i < kept; ++i) result[order[i]] = weights[i] / total;
  return result;
}

// Draws n tokens; impossible ones must not occur, and chi-square must stay within six standard
// deviations of its mean (seeds are fixed, so this passes always or never).
void expect_distribution(const std::vector<float>& logits, const Params& p, int n = 20000) {
  const std::vector<double> expected = exact(logits, p);
  Sampler sampler(p, static_cast<int64_t>(logits.size()));
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < n; ++i) {
    std::vector<float> copy = logits;
    ++counts[static_cast<size_t>(sampler.sample(copy, {}))];
  }
  double chi = 0;
  double rest_expected = 0;
  double rest_count = 0;
  int cells = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double e = expected[i] * n;
    if (e == 0) {
      ASSERT_EQ(counts[i], 0) << "token " << i << " was cut";
    } else if (e < 10) {
      rest_expected += e;
      rest_count += counts[i];
    } else {
      chi += (counts[i] - e) * (counts[i] - e) / e;
      ++cells;
    }
  }
  if (rest_expected > 0) {
    chi +=
        (rest_count - rest_expected) * (rest_count - rest_expected) / std::max(rest_expected, 1.);
    ++cells;
  }
  EXPECT_LT(chi, cells + 6 * std::sqrt(2.0 * cells) + 1);
}

std::vector<float> random_logits(size_t n, uint32_t seed, float sigma = 2) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(rng);
  return logits;
}

TEST(Sampler, DrawsFromTheExactDistribution) {
  for (const size_t n : {1U, 2U, 17U, 200U, 600U}) {
    const auto logits = random_logits(n, static_cast<uint32_t>(n));
    Params p = plain();
    expect_distribution(logits, p);
    p.temperature = 0.6f;
    p.seed = 5;
    expect_distribution(logits, p);
    p.top_k = 8;
    expect_distribution(logits, p);
    p.top_p = 0.7f;
    expect_distribution(logits, p);
    p.top_k = 0;
    expect_distribution(logits, p);
    p.min_p = 0.1f;
    expect_distribution(logits, p);
    p.top_p = 1;
    expect_distribution(logits, p);
    p.top_k = 40;
    p.top_p = 0.95f;
    p.min_p = 0.05f;
    expect_distribution(logits, p);
  }
}

// A flat vocabulary makes top-p's head longer than its first chunks.
TEST(Sampler, LongTopPHead) {
  Params p = plain();
  p.top_p = 0.9f;
  expect_distribution(random_logits(700, 1, 0.3f), p);
}

TEST(Sampler, GreedyTakesTheLowerIdOfEquals) {
  Params p = plain();
  p.temperature = 0;
  Sampler sampler(p, 5);
  std::vector<float> logits{1, 3, 3, -1, 3};
  EXPECT_EQ(sampler.sample(logits, {}), 1);
}

TEST(Sampler, SelectionTiesGoToTheLowerId) {
  Params p = plain();
  p.top_k = 3;
  Sampler sampler(p, 100);
  std::vector<int> counts(100, 0);
  for (int i = 0; i < 300; ++i) {
    std::vector<float> logits(100, 0.5f);
    ++counts[static_cast<size_t>(sampler.sample(logits, {}))];
  }
  EXPECT_EQ(counts[0] + counts[1] + counts[2], 300);
  EXPECT_GT(std::min({counts[0], counts[1], counts[2]}), 50);
  p.top_k = 0;
  p.top_p = 0.029f;  // of 100 equals: the first three
  Sampler nucleus(p, 100);
  for (int i = 0; i < 300; ++i) {
    std::vector<float> logits(100, 0.5f);
    EXPECT_LT(nucleus.sample(logits, {}), 3);
  }
}

TEST(Sampler, TopPZeroKeepsTheBest) {
  Params p = plain();
  p.top_p = 0;
  Sampler sampler(p, 50);
  for (int i = 0; i < 50; ++i) {
    auto logits = random_logits(50, 3);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    EXPECT_EQ(sampler.sample(logits, {}), best);
  }
}

TEST(Sampler, PenaltiesByHand) {
  Params p = plain();
  p.temperature = 0;
  p.repeat_penalty = 2;
  p.frequency_penalty = 0.5f;
  p.presence_penalty = 0.25f;
  p.penalty_last_n = 4;
  p.logit_bias = {{0, 1.5f}, {4, -kInf}};
  Sampler sampler(p, 6);
  std::vector<float> logits{1, 4, -1, 2, 9, 0.5f};
  const std::vector<Token> history{5, 5, 1, 2, 1, 1};  // the window is 1, 2, 1, 1
  const Token token = sampler.sample(logits, history);
  EXPECT_EQ(logits[0], 2.5f);    // 1 + 1.5
  EXPECT_EQ(logits[1], 0.25f);   // 4 / 2 - 3 * 0.5 - 0.25
  EXPECT_EQ(logits[2], -2.75f);  // -1 * 2 - 0.5 - 0.25
  EXPECT_EQ(logits[3], 2.0f);    // untouched
  EXPECT_EQ(logits[4], -kInf);   // banned
  EXPECT_EQ(logits[5], 0.5f);    // outside the window
  EXPECT_EQ(token, 0);

  std::vector<float> again{1, 4, -1, 2, 9, 0.5f};  // counters must start afresh
  EXPECT_EQ(sampler.sample(again, history), 0);
  EXPECT_EQ(again, logits);

  p.penalty_last_n = -1;
  Sampler all(p, 6);
  std::vector<float> everything{1, 4, -1, 2, 9, 0.5f};
  EXPECT_EQ(all.sample(everything, history), 0);
  EXPECT_EQ(everything[5], -1.0f);  // 0.5 / 2 - 2 * 0.5 - 0.25

  p.penalty_last_n = 0;
  Sampler none(p, 6);
  std::vector<float> untouched{1, 4, -1, 2, 9, 0.5f};
  EXPECT_EQ(none.sample(untouched, history), 1);
  EXPECT_EQ(untouched[1], 4.0f);
}

TEST(Sampler, HistoryOutsideTheVocabularyIsIgnored) {
  Params p = plain();
  p.temperature = 0;
  p.repeat_penalty = 10;
  Sampler sampler(p, 3);
  std::vector<float> logits{1, 2, 1.5f};
  const std::vector<Token> history{-1, 3, 1000000, 1};
  EXPECT_EQ(sampler.sample(logits, history), 2);
}

TEST(Sampler, SameSeedSameTokens) {
  Params p = plain();
  p.seed = 1234;
  Sampler a(p, 500);
  Sampler b(p, 500);
  p.seed = 1235;
  Sampler c(p, 500);
  int different = 0;
  for (uint32_t i = 0; i < 200; ++i) {
    auto x = random_logits(500, i);
    auto y = x;
    auto z = x;
    const Token token = a.sample(x, {});
    EXPECT_EQ(token, b.sample(y, {}));
    different += token != c.sample(z, {});
  }
  EXPECT_GT(different, 100);
}

// Equal logits over 1,024 tokens show the generator's leading ten bits, here against a second
// writing of xoshiro256** seeded by splitmix64.
TEST(Sampler, GeneratorIsTheNamedOne) {
  uint64_t s[4];
  uint64_t state = 0;
  for (uint64_t& word : s) {
    uint64_t z = (state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    word = z ^ (z >> 31);
  }
  EXPECT_EQ(s[0], 0xe220a8397b1dcdafU);  // the published first output of splitmix64(0)
  const auto rotl = [](uint64_t x, int k) { return (x << k) | (x >> (64 - k)); };
  Sampler sampler(plain(), 1024);
  for (int i = 0; i < 50; ++i) {
    const uint64_t r = rotl(s[1] * 5, 7) * 9;
    const uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    std::vector<float> logits(1024, 0.0f);
    EXPECT_EQ(sampler.sample(logits, {}), static_cast<Token>(r >> 54));
  }
}

TEST(Sampler, BrokenLogitsAreSurvived) {
  for (const float temperature : {0.0f, 1.0f, 1e-30f, 1e30f}) {
    for (const int top_k : {0, 1, 2}) {
      Params p = plain();
      p.temperature = temperature;
      p.top_k = top_k;
      p.top_p = 0.9f;
      p.min_p = 0.01f;
      Sampler sampler(p, 4);
      std::vector<float> nans{kNan, kNan, kNan, kNan};
      EXPECT_EQ(sampler.sample(nans, {}), 0);
      std::vector<float> banned{-kInf, -kInf, -kInf, -kInf};
      EXPECT_EQ(sampler.sample(banned, {}), 0);
      std::vector<float> one{kNan, -kInf, 1, kNan};
      EXPECT_EQ(sampler.sample(one, {}), 2);
      std::vector<float> infinite{0, kInf, 1, kNan};
      EXPECT_EQ(sampler.sample(infinite, {}), 1);
    }
  }
}

TEST(Sampler, ValidateNamesTheValue) {
  EXPECT_TRUE(validate(Params{}, 10).ok());
  const auto expect_bad = [](auto&& change, const char* name) {
    Params p;
    change(p);
    const Status status = validate(p, 10);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
  };
  for (const float x : {-0.1f, kNan, kInf}) {
    expect_bad([x](Params& p) { p.temperature = x; }, "temperature");
  }
  expect_bad([](Params& p) { p.top_k = -1; }, "top_k");
  for (const float x : {-0.1f, 1.1f, kNan}) {
    expect_bad([x](Params& p) { p.top_p = x; }, "top_p");
    expect_bad([x](Params& p) { p.min_p = x; }, "min_p");
  }
  for (const float x : {0.0f, -1.0f, kNan, kInf}) {
    expect_bad([x](Params& p) { p.repeat_penalty = x; }, "repeat_penalty");
  }
  for (const float x : {kNan, kInf, -kInf}) {
    expect_bad([x](Params& p) { p.frequency_penalty = x; }, "frequency_penalty");
    expect_bad([x](Params& p) { p.presence_penalty = x; }, "presence_penalty");
  }
  expect_bad([](Params& p) { p.penalty_last_n = -2; }, "penalty_last_n");
  expect_bad([](Params& p) { p.logit_bias = {{10, 1.0f}}; }, "logit_bias");
  expect_bad([](Params& p) { p.logit_bias = {{-1, 1.0f}}; }, "logit_bias");
  expect_bad([](Params& p) { p.logit_bias = {{1, kNan}}; }, "logit_bias");
  expect_bad([](Params& p) { p.logit_bias = {{1, kInf}}; }, "logit_bias");
  EXPECT_EQ(validate(Params{}, 0).code(), Code::kInvalidArgument);
}

TEST(Sampler, MemoryIsTheScratch) {
  const Sampler sampler(Params{}, 1000);
  EXPECT_GE(sampler.memory_bytes(), 8000U);
  EXPECT_LE(sampler.memory_bytes(), 9000U);
}

TEST(TopLogprobs, MatchesTheSoftmax) {
  const auto logits = random_logits(300, 9);
  const std::vector<double> p = exact(logits, plain());
  const auto top = top_logprobs(logits, 5, 17);
  ASSERT_EQ(top.size(), 6U);
  for (size_t i = 0; i < top.size(); ++i) {
    const size_t token = static_cast<size_t>(top[i].token);
    EXPECT_NEAR(top[i].logprob, std::log(p[token]), 1e-5);
    if (i >= 1 && i < 5) {
      EXPECT_GE(top[i - 1].logprob, top[i].logprob);
    }
  }
  EXPECT_EQ(top[5].token, 17);
  EXPECT_EQ(top_logprobs(logits, 1000, 0).size(), 301U);
  EXPECT_EQ(top_logprobs(logits, 0, 300).back().logprob, -kInf);
  EXPECT_EQ(top_logprobs(std::vector<float>{kNan, -kInf}, 2, 0).size(), 3U);
}

}  // namespace
}  // namespace sluice::sample
