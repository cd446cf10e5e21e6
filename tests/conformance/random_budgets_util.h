// Random budgets and prompts for a streamed mixture: its logits stay those of the whole model.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "tests/conformance/fixtures_util.h"
#include "tests/conformance/made_mixture_util.h"

namespace sluice::test {

struct RandomBudgets {
  uint32_t seed;
  int operations;
};

// Both models are a MadeMixture; `least` is the smallest budget of `streamed`. Every third
// operation changes the budget, every fourth forgets what came before. Stops at the first
// difference.
inline void random_budgets_keep_logits(Opened& streamed, Opened& whole, uint64_t least,
                                       RandomBudgets how) {
  const std::vector<int32_t> tokens = mixture_tokens();
  const uint64_t weights = whole.model->engine().residency().plan().total_bytes;
  std::mt19937 random(how.seed);
  for (int i = 0; i < how.operations; ++i) {
    if (random() % 3 == 0) {
      EXPECT_TRUE(streamed.model->set_memory_budget(least + random() % weights).ok());
    }
    if (random() % 4 == 0) streamed.session->clear();
    const auto n = static_cast<ptrdiff_t>(1 + random() % tokens.size());
    const std::vector<int32_t> some(tokens.begin(), tokens.begin() + n);
    ASSERT_EQ(logits_after(streamed, some), logits_after(whole, some)) << "operation " << i;
  }
}

}  // namespace sluice::test
