// The cache of experts: which experts routers of different habits find in memory, compared with
// LRU. Fills complete at once here; tests/unit/residency_test.cpp tries every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "residency/residency.h"

namespace sluice::residency {
namespace {

constexpr uint32_t kLayers = 4, kExperts = 16, kUsed = 2;
constexpr int64_t kRows = 8, kRowBytes = 64;
constexpr uint64_t kExpertBytes = 3 * kRows * kRowBytes;

std::vector<MatrixSpec> mixture() {
  std::vector<MatrixSpec> out;
  for (uint32_t i = 0; i < kLayers * kExperts * 3; ++i) {
    MatrixSpec s;
    s.kind = MatrixKind::kExpert;
    s.offset = i * static_cast<uint64_t>(kRows * kRowBytes);
    s.rows = kRows;
    s.row_bytes = s.packed_group_bytes = kRowBytes;
    s.layer = static_cast<int32_t>(i / (kExperts * 3));
    s.expert = static_cast<int32_t>(i / 3 % kExperts);
    out.push_back(s);
  }
  return out;
}

// The experts of a layer's next token, ascending.
using Router = std::vector<uint32_t> (*)(std::mt19937& random, std::vector<uint32_t> last);

uint32_t below(std::mt19937& random, uint32_t n) {
  return static_cast<uint32_t>(random() % n);
}

template <class Draw>
std::vector<uint32_t> different(Draw&& draw) {
  std::vector<uint32_t> out;
  while (out.size() < kUsed) {
    const uint32_t e = draw();
    if (std::find(out.begin(), out.end(), e) == out.end()) out.push_back(e);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<uint32_t> uniform(std::mt19937& random, std::vector<uint32_t>) {
  return different([&] { return below(random, kExperts); });
}

// A few experts are popular: the smallest of three.
std::vector<uint32_t> skewed(std::mt19937& random, std::vector<uint32_t>) {
  return different([&] {
    return std::min({below(random, kExperts), below(random, kExperts), below(random, kExperts)});
  });
}

// Mostly what the last token used; no expert is popular.
std::vector<uint32_t> repeating(std::mt19937& random, std::vector<uint32_t> last) {
  if (!last.empty() && random() % 4 != 0) {
    last[random() % kUsed] = below(random, kExperts);
    if (last[0] != last[1]) {
      std::sort(last.begin(), last.end());
      return last;
    }
  }
  return uniform(random, last);
}

struct Lru {
  std::vector<uint32_t> order;  // the last used first
  bool use(uint32_t expert, size_t capacity) {
    const auto at = std::find(order.begin(), order.end(), expert);
    const bool hit = at != order.end();
    if (hit) order.erase(at);
    order.insert(order.begin(), expert);
    if (order.size() > capacity) order.pop_back();
    return hit;
  }
};

struct Rates {
  double ours, lru;
};

// Hit rates over 2000 tokens with memory for a share of the experts.
Rates rates(Router router, uint32_t pinned) {
  const std::vector<MatrixSpec> matrices = mixture();
  const uint64_t ring = kFewSlots * kRows * kRowBytes;
  Residency r;
  EXPECT_TRUE(r.init(make_plan(matrices, 1, pinned * kExpertBytes + ring)).ok());
  EXPECT_EQ(r.plan().experts.size(), kLayers * kExperts);
  EXPECT_EQ(r.plan().pinned_bytes, pinned * kExpertBytes);
  std::mt19937 random(7);
  std::vector<Lru> lru(kLayers);
  std::vector<std::vector<uint32_t>> last(kLayers);
  uint64_t lru_hits = 0, uses = 0;
  for (int token = 0; token < 2000; ++token) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      last[layer] = router(random, last[layer]);
      std::vector<ExpertUse> used;
      std::vector<uint32_t> demand;
      for (const uint32_t e : last[layer]) {
        ++uses;
        lru_hits += lru[layer].use(e, pinned / kLayers);
        used.push_back({layer * kExperts + e, 1});
        const Expert& expert = r.plan().experts[layer * kExperts + e];
        for (uint32_t u = expert.first_unit; u < expert.end_unit; ++u) demand.push_back(u);
      }
      r.use_experts(1, used);
      r.set_demand(demand);
      for (const uint32_t unit : demand) {
        for (int i = 0; i < 10 && !r.ready(unit); ++i) {
          r.poll();
          for (uint32_t n = 0; n < kFillCapacity; ++n) {
            if (r.requests().queue().ring[n].state == kFillPending)
              r.requests().queue().ring[n].state = kFillDone;
          }
          r.collect();
          r.mark_arrived_ready();
        }
        EXPECT_TRUE(r.ready(unit));
        if (!r.ready(unit)) return {};
        r.advance_past(unit);
      }
    }
  }
  EXPECT_EQ(r.counts().expert_hits + r.counts().expert_misses, uses);
  EXPECT_LE(r.counts().expert_missed_bytes, r.counts().filled_bytes);
  uint64_t still = 0;  // pinned bytes only change hands
  for (const Unit& u : r.plan().units) still += u.pinned ? u.packed_bytes : 0;
  EXPECT_EQ(still, pinned * kExpertBytes);
  return {static_cast<double>(r.counts().expert_hits) / static_cast<double>(uses),
          static_cast<double>(lru_hits) / static_cast<double>(uses)};
}

TEST(ExpertCache, RandomRoutingHitsTheShareInMemory) {
  const Rates r = rates(uniform, 16);
  EXPECT_NEAR(r.ours, 0.25, 0.03);
  EXPECT_GT(r.ours, r.lru - 0.01);
}

TEST(ExpertCache, PopularExpertsStay) {
  const Rates r = rates(skewed, 16);
  EXPECT_GT(r.ours, 0.48);
  EXPECT_GT(r.ours, r.lru + 0.08);
}

TEST(ExpertCache, RecentExpertsStay) {
  const Rates r = rates(repeating, 16);
  EXPECT_GT(r.ours, 0.4);
  EXPECT_GT(r.ours, r.lru - 0.01);
}

// An expert's value is the rate at which experts like it are used.
TEST(ExpertValues, AreMeasuredRates) {
  std::vector<Expert> experts(8);
  ExpertValues values;
  values.init(experts);
  const std::vector<ExpertUse> always = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
  for (int token = 0; token < 3000; ++token) {  // 4 every other token, 5 never again
    std::vector<ExpertUse> used = always;
    if (token % 2 == 0) used.push_back({4, 1});
    if (token == 0) used.push_back({5, 1});
    values.note(0, 1, used);
  }
  EXPECT_GT(values.value(0), 0.95);
  EXPECT_GT(values.value(4), 0.95) << "due: its last use was two tokens ago";
  EXPECT_LT(values.value(5), 0.01);
  std::vector<ExpertUse> even = always;
  even.push_back({4, 1});
  values.note(0, 1, even);
  EXPECT_GT(values.value(0), 0.95);
  EXPECT_LT(values.value(4), 0.05) << "used just now";
}

// A prompt counts each of its tokens, and says nothing about what the next token uses.
TEST(ExpertValues, PromptsSetFrequencies) {
  std::vector<Expert> experts(4);
  ExpertValues values;
  values.init(experts);
  const std::vector<ExpertUse> prompt = {{0, 200}, {1, 100}, {2, 10}};
  values.note(0, 256, prompt);
  EXPECT_GT(values.value(0), values.value(1));
  EXPECT_GT(values.value(1), values.value(2));
  EXPECT_GT(values.value(2), values.value(3));
  EXPECT_NEAR(values.value(0), 200.0 / 256, 0.06);
}

}  // namespace
}  // namespace sluice::residency
