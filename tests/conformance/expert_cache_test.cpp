// Mixtures under budgets that hold a part of their experts: the same bits whichever experts are in
// memory, and a prompt reads each expert once a batch.
#include <gtest/gtest.h>

#include <set>

#include "tests/conformance/fixtures_util.h"
#include "tests/conformance/made_mixture_util.h"

namespace sluice::test {
namespace {

// Experts used by the passes of a session, as (mixture, expert).
struct Used {
  std::set<std::pair<int32_t, int32_t>> experts;
  size_t uses = 0;
  static void note(void* context, int32_t mixture, int32_t n_tokens, int32_t n_used,
                   session::Choice* choices) {
    auto* const self = static_cast<Used*>(context);
    for (int32_t i = 0; i < n_tokens * n_used; ++i) {
      self->experts.insert({mixture, choices[i].expert});
      ++self->uses;
    }
  }
};

session::EngineOptions small_options() {
  session::EngineOptions out;
  out.n_ctx = 128;
  out.n_threads = 2;
  return out;
}

TEST(ExpertCacheModel, EveryBudgetGivesTheSameLogits) {
  const MadeMixture file;
  const std::vector<int32_t> tokens = mixture_tokens();
  Opened whole = open_model(file.path, small_options());
  ASSERT_NE(whole.session, nullptr);
  const std::vector<float> expected = all_logits(whole, tokens, 1);
  EXPECT_EQ(whole.model->engine().residency().counts().expert_misses, 0u);
  const uint64_t weights = whole.model->engine().residency().plan().total_bytes;
  const uint64_t least = smallest_budget(file.path, small_options());
  double last_rate = -1;
  int replaced = 0;  // engines in which an expert took the memory of another
  for (const uint64_t eighth : {0, 2, 4, 6, 7}) {
    session::EngineOptions options = small_options();
    options.memory_budget = least + eighth * weights / 8;
    Opened opened = open_model(file.path, options);
    ASSERT_NE(opened.session, nullptr);
    const residency::Residency& r = opened.model->engine().residency();
    ASSERT_EQ(r.plan().experts.size(), 64u);
    std::vector<bool> pinned;
    for (const residency::Unit& unit : r.plan().units) pinned.push_back(unit.pinned);
    EXPECT_EQ(all_logits(opened, tokens, 1), expected) << options.memory_budget;
    EXPECT_EQ(r.counts().expert_hits + r.counts().expert_misses, 96u * 4 * 2);
    const double rate = static_cast<double>(r.counts().expert_hits) / (96 * 4 * 2);
    EXPECT_GE(rate, last_rate) << "a larger budget";
    last_rate = rate;
    bool moved = false;
    for (size_t u = 0; u < pinned.size(); ++u) moved |= pinned[u] != r.plan().units[u].pinned;
    replaced += moved;
    // Another budget keeps what fits, and changes no result.
    EXPECT_TRUE(opened.model->set_memory_budget(least + 5 * weights / 8).ok());
    opened.session->clear();
    EXPECT_EQ(all_logits(opened, tokens, 1), expected);
  }
  EXPECT_GE(replaced, 3);
  EXPECT_GT(last_rate, 0.5);
}

class ExpertCacheTest : public testing::TestWithParam<const char*> {
 protected:
  std::string path_ = own_folder("families") + "/" + GetParam();
};

TEST_P(ExpertCacheTest, APromptReadsEachExpertOnceABatch) {
  session::EngineOptions options = small_options();
  options.n_batch = options.min_batch = 32;
  options.memory_budget = smallest_budget(path_, options);
  Opened opened = open_model(path_, options);
  ASSERT_NE(opened.session, nullptr);
  session::Engine& engine = opened.model->engine();
  ASSERT_EQ(engine.plan().batch.n_batch, 32);
  Used used;
  engine.context().executor->hook_routing({Used::note, &used});
  const model::Program& p = engine.program();
  const auto bytes_of = [&](int32_t mat) {
    const model::Mat& m = p.mats[static_cast<size_t>(mat)];
    return static_cast<uint64_t>(m.rows * m.row_bytes);
  };
  uint64_t dense = 0;
  for (const residency::Unit& unit : engine.residency().plan().units) {
    if (unit.kind == residency::MatrixKind::kDense) dense += unit.bytes;
  }
  static_cast<void>(logits_after(opened, {1}));
  const uint64_t before = engine.residency().counts().filled_bytes;
  used = {};
  std::vector<int32_t> batch = mixture_tokens();
  batch.resize(33);
  static_cast<void>(logits_after(opened, batch));
  uint64_t once = 0, each = 0;
  for (const auto& [mixture, expert] : used.experts) {
    const model::Moe& moe = p.moes[static_cast<size_t>(mixture)];
    const auto e = static_cast<size_t>(expert);
    const uint64_t bytes = bytes_of(moe.gate[e]) + bytes_of(moe.up[e]) + bytes_of(moe.down[e]);
    once += bytes;
    each = bytes * used.uses;
  }
  const uint64_t embeddings = 32 * bytes_of(p.embedding) / 288;
  const uint64_t read = engine.residency().counts().filled_bytes - before;
  EXPECT_LE(read, once + 2 * dense + embeddings);  // also what the next pass reads first
  EXPECT_GT(each, 3 * once);
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertCacheTest,
                         testing::Values("qwen3moe.gguf", "llama-moe.gguf"));

}  // namespace
}  // namespace sluice::test
