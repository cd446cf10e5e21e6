// The sampler compared with a naive version (sort everything, in double): draws statistically,
// penalties with numbers computed by hand.
#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <span>

#include "../extent.h"
#include "../sanitized.h"

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

// The exact distribution: sort all, keep k, softmax, cut by top-p, then by min-p, renormalize.
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

// Draws n tokens. Impossible ones must not occur, and chi-square must stay within six standard
// deviations of its mean. Seeds are fixed, so this passes always or never.
void expect_distribution(const std::vector<float>& logits, const Params& p,
                         int n = test::extent(8000, 20000)) {
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
  const std::vector<size_t> sizes =
      test::kSanitized ? std::vector<size_t>{17, 200} : std::vector<size_t>{1, 2, 17, 200, 600};
  for (const size_t n : sizes) {
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

// On a flat vocabulary the tokens kept by top-p exceed the first chunks.
TEST(Sampler, TopPKeepsManyTokens) {
  Params p = plain();
  p.top_p = 0.9f;
  expect_distribution(random_logits(700, 1, 0.3f), p);
}

TEST(Sampler, GreedyBreaksTiesByLowerId) {
  Params p = plain();
  p.temperature = 0;
  Sampler sampler(p, 5);
  std::vector<float> logits{1, 3, 3, -1, 3};
  EXPECT_EQ(sampler.sample(logits, {}), 1);
}

TEST(Sampler, SelectionBreaksTiesByLowerId) {
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
  p.top_p = 0.029f;  // of 100 equal ones, the first three
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

// Biases and penalties of one logit. With all others banned, a further token with this value as
// bias wins just above the expected logit and loses just below it.
void expect_adjusted(Params p, std::vector<float> logits, std::span<const Token> history,
                     size_t token, float expected) {
  const Token probe = static_cast<Token>(logits.size());
  logits.push_back(0);
  p.temperature = 0;
  for (size_t t = 0; t + 1 < logits.size(); ++t) {
    if (t != token) p.logit_bias.emplace_back(t, -kInf);
  }
  p.logit_bias.emplace_back(probe, expected - 1e-3f);
  Sampler below(p, static_cast<int64_t>(logits.size()));
  EXPECT_EQ(below.sample(logits, history), static_cast<Token>(token)) << token;
  p.logit_bias.back().second = expected + 1e-3f;
  Sampler above(p, static_cast<int64_t>(logits.size()));
  EXPECT_EQ(above.sample(logits, history), probe) << token;
}

TEST(Sampler, PenaltiesByHand) {
  Params p = plain();
  p.repeat_penalty = 2;
  p.frequency_penalty = 0.5f;
  p.presence_penalty = 0.25f;
  p.penalty_last_n = 4;
  p.logit_bias = {{0, 1.5f}};
  const std::vector<float> logits{1, 4, -1, 2, 9, 0.5f};
  const std::vector<Token> history{5, 5, 1, 2, 1, 1};  // the window is 1, 2, 1, 1
  expect_adjusted(p, logits, history, 0, 2.5f);        // 1 + 1.5
  expect_adjusted(p, logits, history, 1, 0.25f);       // 4 / 2 - 3 * 0.5 - 0.25
  expect_adjusted(p, logits, history, 2, -2.75f);      // -1 * 2 - 0.5 - 0.25
  expect_adjusted(p, logits, history, 3, 2.0f);        // untouched
  expect_adjusted(p, logits, history, 5, 0.5f);        // outside the window
  p.penalty_last_n = -1;
  expect_adjusted(p, logits, history, 5, -1.0f);  // 0.5 / 2 - 2 * 0.5 - 0.25
  p.penalty_last_n = 0;
  expect_adjusted(p, logits, history, 1, 4.0f);
}

// Logits stay the model's own, whatever the sampling options.
TEST(Sampler, DoesNotChangeTheLogits) {
  std::vector<float> logits{1, 4, -1, 2, 9, 0.5f};
  const std::vector<float> before = logits;
  const std::vector<Token> history{4, 4, 1};
  for (const float temperature : {0.0f, 1.0f}) {
    for (const int top_k : {0, 2}) {
      Params p = plain();
      p.temperature = temperature;
      p.top_k = top_k;
      p.repeat_penalty = 2;
      p.presence_penalty = 1;
      p.logit_bias = {{0, 1.5f}, {3, -kInf}};
      Sampler sampler(p, 6);
      for (int i = 0; i < 3; ++i) EXPECT_NE(sampler.sample(logits, history), 3);
      EXPECT_EQ(logits, before);
    }
  }
}

TEST(Sampler, BannedTokensAreNeverDrawn) {
  const auto logits = random_logits(64, 11, 0.1f);
  for (const int top_k : {0, 8, 64}) {
    for (const float top_p : {1.0f, 0.9f}) {
      Params p = plain();
      p.top_k = top_k;
      p.top_p = top_p;
      for (Token t = 0; t < 64; ++t) {
        if (t % 9 != 0) p.logit_bias.emplace_back(t, -kInf);
      }
      Sampler sampler(p, 64);
      for (int i = 0; i < 3000; ++i) ASSERT_EQ(sampler.sample(logits, {}) % 9, 0);
    }
  }
}

TEST(Sampler, AdjustedLogitsAreDrawnExactly) {
  Params p = plain();
  auto logits = random_logits(200, 21);
  auto shifted = logits;
  for (Token t = 0; t < 200; t += 3) {
    p.logit_bias.emplace_back(t, 0.75f);
    shifted[static_cast<size_t>(t)] += 0.75f;
  }
  for (const int top_k : {0, 9}) {
    p.top_k = top_k;
    Params bare = p;
    bare.logit_bias.clear();
    Sampler biased(p, 200), unbiased(bare, 200);
    for (int i = 0; i < 500; ++i) {
      EXPECT_EQ(biased.sample(logits, {}), unbiased.sample(shifted, {}));
    }
  }
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

// Equal logits over 1,024 tokens reveal the generator's top ten bits, compared here with a second
// implementation of xoshiro256** seeded by splitmix64.
TEST(Sampler, GeneratorIsXoshiro256) {
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

TEST(Sampler, DrawsWithWhatItPeekedAtAndSkips) {
  Params p = plain();
  p.seed = 8;
  const std::vector<float> logits(1000, 0.0f);
  Sampler sampler(p, 1000);
  std::vector<float> draws(20);
  sampler.peek(draws);
  for (size_t i = 0; i < draws.size(); ++i) {
    if (i % 3 == 1) {
      sampler.skip();
    } else {
      EXPECT_EQ(sampler.sample(logits, {}), static_cast<Token>(draws[i] * 1000)) << i;
    }
  }
}

TEST(Sampler, PenalizesWithinAWindow) {
  Params p;
  EXPECT_FALSE(penalizes(p));
  p.presence_penalty = 1;
  EXPECT_TRUE(penalizes(p));
  p.penalty_last_n = -1;
  EXPECT_TRUE(penalizes(p));
  p.penalty_last_n = 0;
  EXPECT_FALSE(penalizes(p));
}

TEST(Sampler, BrokenLogitsDoNoHarm) {
  for (const float temperature : {0.0f, 1.0f, 1e-30f, 1e30f}) {
    for (const int top_k : {0, 1, 2}) {
      Params p = plain();
      p.temperature = temperature;
      p.top_k = top_k;
      p.top_p = 0.9f;
      p.min_p = 0.01f;
      Sampler sampler(p, 4);
      std::vector<float> nans{kNan, kNan, kNan, kNan};
      EXPECT_EQ(sampler.sample(nans, {}), kNoToken);
      std::vector<float> banned{-kInf, -kInf, -kInf, -kInf};
      EXPECT_EQ(sampler.sample(banned, {}), kNoToken);
      EXPECT_EQ(sampler.sample({}, {}), kNoToken);
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
  const uint64_t fixed = Sampler::memory_bytes(1);
  EXPECT_LE(fixed, 16u << 10);
  EXPECT_NEAR(static_cast<double>(Sampler::memory_bytes(1000) - fixed), 8000, 64);
  EXPECT_EQ(Sampler::memory_bytes(1 << 22) - fixed, (8ull << 22) - 64);
}

TEST(Sampler, TooManyBiasesAreAnError) {
  Params p;
  p.logit_bias.assign(kMaxLogitBias, {1, 1.0f});
  EXPECT_TRUE(validate(p, 10).ok());
  p.logit_bias.emplace_back(1, 1.0f);
  EXPECT_EQ(validate(p, 10).code(), Code::kInvalidArgument);
}

TEST(Seed, IsAnyIntegerModuloTwoToThe64) {
  const std::vector<std::pair<const char*, uint64_t>> good = {
      {"0", 0},
      {"-0", 0},
      {"007", 7},
      {"9007199254740993", 9007199254740993u},
      {"9223372036854775808", 1ull << 63},
      {"-9223372036854775808", 1ull << 63},
      {"18446744073709551615", ~0ull},
      {"-1", ~0ull},
      {"-2", ~0ull - 1}};
  for (const auto& [text, seed] : good) {
    const Result<uint64_t> parsed = parse_seed(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, seed) << text;
  }
  for (const char* text : {"", "-", "--1", "+1", " 1", "1 ", "1.5", "1e3", "0x10", "nan",
                           "Infinity", "18446744073709551616", "-9223372036854775809", "1,2"}) {
    EXPECT_EQ(parse_seed(text).status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_NE(parse_seed("1e3").status().message().find("\"1e3\""), std::string::npos);
}

TEST(Sampler, ReportsTheDistributionThatItDrewFrom) {
  const auto logits = random_logits(300, 9);
  Params cases[6];
  for (Params& p : cases) p = plain();
  cases[1].temperature = 0.6f;
  cases[2].top_k = 8;
  cases[3].top_p = 0.7f;
  cases[4].min_p = 0.1f;
  cases[5].top_k = 40, cases[5].top_p = 0.95f, cases[5].min_p = 0.05f;
  for (const Params& p : cases) {
    const std::vector<double> expected = exact(logits, p);
    const int possible = static_cast<int>(
        std::count_if(expected.begin(), expected.end(), [](double e) { return e > 0; }));
    Sampler sampler(p, 300);
    for (const int n : {0, 5, 300}) {
      const Token token = sampler.sample(logits, {});
      const auto top = sampler.top_logprobs(n, token);
      ASSERT_EQ(top.size(), static_cast<size_t>(std::min(n, possible) + 1));
      EXPECT_EQ(top.back().token, token);
      for (size_t i = 0; i < top.size(); ++i) {
        EXPECT_NEAR(std::exp(top[i].logprob), expected[static_cast<size_t>(top[i].token)], 1e-6);
        if (i >= 1 && i + 1 < top.size()) {
          EXPECT_GE(top[i - 1].logprob, top[i].logprob);
        }
      }
    }
    const auto cut = std::find(expected.begin(), expected.end(), 0);
    if (cut == expected.end()) continue;
    ASSERT_NE(sampler.sample(logits, {}), kNoToken);
    const auto token = static_cast<Token>(cut - expected.begin());
    EXPECT_EQ(sampler.top_logprobs(1, token).back().logprob, -kInf);
  }
}

TEST(Sampler, ReportsAllowedTokensOnlyAndOneIfGreedy) {
  const std::vector<float> logits = {3, 1, 2, 0};
  const uint64_t allowed[] = {0b1010};
  Params p = plain();
  for (const float temperature : {1.f, 0.f}) {
    p.temperature = temperature;
    Sampler sampler(p, 4);
    const Token token = sampler.sample(logits, {}, allowed);
    const auto top = sampler.top_logprobs(4, token);
    ASSERT_EQ(top.size(), temperature > 0 ? 3U : 2U);
    EXPECT_EQ(top[0].token, 1);
    EXPECT_NEAR(std::exp(top[0].logprob), temperature > 0 ? 1 / (1 + std::exp(-1.)) : 1, 1e-6);
  }
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
