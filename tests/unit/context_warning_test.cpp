// The warning before a context is full: at 90 %, by the generation that reaches it, and not again.
#include "generate/context_warning.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

std::string warning(int32_t cached, int32_t prompt, int32_t generated, bool evicts = false) {
  session::MemoryPlan plan;
  plan.context.n_ctx = 100;
  if (evicts) plan.kv.layout.window = 40;
  generate::Counts counts;
  counts.cached = cached;
  counts.prompt = prompt;
  counts.generated = generated;
  return generate::context_warning(counts, plan);
}

TEST(ContextWarning, OnceWhenTheContextIsNinetyPercentFull) {
  EXPECT_EQ(warning(0, 50, 39), "");
  EXPECT_EQ(warning(0, 50, 40), "the context is nearly full: 90 of 100 tokens");
  EXPECT_EQ(warning(89, 95, 3), "the context is nearly full: 98 of 100 tokens");
  EXPECT_EQ(warning(90, 95, 3), "");
  // The last token of a full context is not computed.
  EXPECT_EQ(warning(0, 60, 41), "the context is nearly full: 100 of 100 tokens");
}

TEST(ContextWarning, NotWhereTheCacheEvicts) {
  EXPECT_EQ(warning(0, 50, 45, true), "");
}

}  // namespace
}  // namespace sluice::test
