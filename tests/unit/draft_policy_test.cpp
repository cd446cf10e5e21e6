// DraftPolicy against a simulated machine and text. Latencies of forward passes and draft models,
// and the acceptance rate, are known. So its throughput can be compared with one token per pass and
// with the best constant draft length. No clock is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <vector>

#include "draft/policy.h"

namespace sluice::draft {
namespace {

constexpr int32_t kMax = 15;

// Milliseconds of a forward pass of so many tokens.
using Passes = std::function<double(int32_t)>;

struct World {
  Passes pass_ms;
  double draft_ms = 0;                    // of the draft model
  std::function<double(int32_t)> chance;  // of a draft token at this position
  double noise = 0;                       // passes take up to this fraction more or less
  uint32_t seed = 1;
};

double between(std::span<const std::pair<int32_t, double>> known, int32_t n) {
  size_t i = 1;
  while (i + 1 < known.size() && known[i].first < n) ++i;
  const auto [a, x] = known[i - 1];
  const auto [b, y] = known[i];
  return x + (y - x) * (n - a) / (b - a);
}

// Latencies measured on a resident model before small batches had their own kernels, the target for
// them, and those of a streamed model, whose passes cost nearly the same.
double resident(int32_t n) {
  constexpr std::array<std::pair<int32_t, double>, 5> kKnown = {
      {{1, 13.7}, {2, 16.9}, {4, 20.5}, {8, 41.7}, {16, 56.5}}};
  return between(kKnown, n);
}

double resident_tiled(int32_t n) {
  constexpr std::array<std::pair<int32_t, double>, 4> kKnown = {
      {{1, 13.7}, {4, 17.8}, {8, 24.7}, {16, 39.7}}};
  return between(kKnown, n);
}

double streaming(int32_t n) {
  return 2700 + 13 * (n - 1);
}

struct Outcome {
  double ms = 0;
  int32_t drafted = 0;
};

// Generates `tokens` tokens like Drafter: drafts up to the planned length and verifies all of them.
Outcome write(const World& world, DraftState& experience, BatchLatency& costs, int32_t tokens) {
  std::mt19937 random(world.seed);
  const auto even = [&random] { return static_cast<double>(random()) / 4294967296.0; };
  Outcome out;
  const auto spend = [&](double ms) {
    ms *= 1 + world.noise * (2 * even() - 1);
    out.ms += ms;
    return ms;
  };
  std::vector<double> scratch(kMax);
  int32_t missing = 1, said = 1;
  for (int32_t at = 0; at < tokens; at += said) {
    Setting setting;
    setting.each_ms = world.draft_ms;
    const auto late = [&](int32_t n) {  // reads no more than two passes cost
      return std::min(world.draft_ms * 0.15 * (n - 1), 2 * world.pass_ms(1));
    };
    setting.late_ms = late(missing);
    setting.setup_ms =
        late(std::min(missing, 2)) + (late(missing) - late(std::min(missing, 2))) / 16;
    int32_t length = 0;
    if (costs.known(1)) {
      length = experience.attempts.plan(costs, experience.trust, scratch, setting, said).length;
    }
    if (length > 0) {
      spend(late(missing));
      spend(world.draft_ms * length);
      missing = 1;
    }
    int32_t right = 0;
    while (right < length) {
      const bool good = even() < world.chance(at + right);
      experience.trust.note(0, good);
      if (!good) break;
      ++right;
    }
    costs.note(1 + length, spend(world.pass_ms(1 + length)));
    said = right + 1;
    missing = std::min(missing + said - right, 64);
    out.drafted += length;
  }
  return out;
}

Outcome write(const World& world, int32_t tokens) {
  DraftState experience;
  BatchLatency costs;
  return write(world, experience, costs, tokens);
}

// Tokens per millisecond at the best constant length, and that length.
Choice best_constant(const World& world, double chance) {
  Choice best;
  for (int32_t n = 0; n <= kMax; ++n) {
    double said = 1, all = 1;
    for (int32_t i = 0; i < n; ++i) said += all *= chance;
    const double rate = said / (world.pass_ms(1 + n) + n * world.draft_ms);
    if (rate > best.rate) best = {n, rate};
  }
  return best;
}

struct Case {
  const char* name;
  Passes pass_ms;
  double draft_ms;
};

const std::array<Case, 6> kCases = {{{"resident, large draft", resident, 3.3},
                                     {"resident, small draft", resident, 0.7},
                                     {"tiled, large draft", resident_tiled, 3.3},
                                     {"tiled, small draft", resident_tiled, 0.7},
                                     {"streaming", streaming, 5},
                                     {"streaming, draft streams too", streaming, 1200}}};

TEST(DraftPolicy, UnpredictableTextLosesLessThanThreePercent) {
  for (const Case& c : kCases) {
    for (const double noise : {0.0, 0.1}) {
      for (const int32_t tokens : {128, 256, 2000}) {
        constexpr uint32_t kSeeds = 8;
        double ms = 0;
        for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
          const World world{c.pass_ms, c.draft_ms, [](int32_t) { return 0.02; }, noise, seed};
          ms += write(world, tokens).ms / kSeeds;
        }
        EXPECT_LT(ms, 1.03 * tokens * c.pass_ms(1))
            << c.name << ", " << tokens << " tokens, noise " << noise;
      }
    }
  }
}

TEST(DraftPolicy, ComesNearTheBestConstantLength) {
  for (const Case& c : kCases) {
    for (const double chance : {0.3, 0.6, 0.8, 0.95}) {
      for (const double noise : {0.0, 0.1}) {
        constexpr int32_t kTokens = 2000;
        const World world{c.pass_ms, c.draft_ms, [=](int32_t) { return chance; }, noise};
        const Choice best = best_constant(world, chance);
        const double rate = kTokens / write(world, kTokens).ms;
        EXPECT_GT(rate, 0.88 * best.rate)
            << c.name << ", " << chance << ", noise " << noise << ", best " << best.length;
        EXPECT_GT(rate, 0.97 / c.pass_ms(1)) << c.name << ", " << chance << ", noise " << noise;
      }
    }
  }
}

// Text that becomes predictable, or unpredictable, in the middle.
TEST(DraftPolicy, AdaptsToAChange) {
  for (const Case& c : kCases) {
    const auto world = [&](double before, double after) {
      return World{c.pass_ms, c.draft_ms, [=](int32_t at) { return at < 1000 ? before : after; },
                   0.05};
    };
    constexpr int32_t kTokens = 3000;
    const double good = 1 / best_constant(world(0.9, 0.9), 0.9).rate, single = c.pass_ms(1);
    EXPECT_LT(write(world(0.9, 0.02), kTokens).ms, 1.08 * (1000 * good + 2000 * single)) << c.name;
    // Noticed after at most another thousand tokens.
    EXPECT_LT(write(world(0.02, 0.9), kTokens).ms, 1.08 * (2000 * single + 1000 * good)) << c.name;
  }
}

// What was learned on one text applies to the next: a draft that does not speed up decoding is not
// retried at every beginning.
TEST(DraftPolicy, RemembersAcrossTexts) {
  DraftState experience;
  BatchLatency costs;
  const World world{resident, 3.3, [](int32_t) { return 0.02; }};
  double ms = 0;
  for (int32_t text = 0; text < 50; ++text) {
    experience.trust.settle();
    ms += write(world, experience, costs, 30).ms;
  }
  EXPECT_LT(ms, 1.03 * 50 * 30 * resident(1));
}

TEST(DraftPolicy, RetriesBecomeRare) {
  const World world{resident, 0.7, [](int32_t) { return 0.0; }};
  const int32_t first = write(world, 1000).drafted, more = write(world, 16000).drafted;
  EXPECT_GT(first, 0);
  EXPECT_GT(more, first);
  EXPECT_LT(more, 4 * first);
}

}  // namespace
}  // namespace sluice::draft
