// QSF files with experts side by side give bit-identical logits to their GGUF source, under every
// budget and through random changes of it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/conformance/fixtures_util.h"
#include "tests/conformance/made_mixture_util.h"
#include "tests/conformance/random_budgets_util.h"
#include "tests/conformance/records_file_util.h"

namespace sluice::test {
namespace {

session::EngineOptions records_options(uint64_t budget) {
  session::EngineOptions out;
  out.n_ctx = 128;
  out.n_threads = 2;
  out.logits_rows = out.n_batch = 8;
  out.memory_budget = budget;
  return out;
}

void expect_same_logits(const std::string& model, const std::vector<int32_t>& tokens) {
  Opened whole = open_model(model, records_options(0));
  ASSERT_NE(whole.session, nullptr);
  const std::vector<float> wanted = all_logits(whole, tokens, 1);
  const RecordsFile file(model);
  const uint64_t least = smallest_budget(file.path, records_options(0));
  const uint64_t weights = whole.model->engine().residency().plan().total_bytes;
  for (const uint64_t eighth : {0, 1, 3, 5, 8}) {
    for (const size_t step : {size_t{1}, size_t{8}}) {
      Opened opened = open_model(file.path, records_options(least + eighth * weights / 8));
      ASSERT_NE(opened.session, nullptr);
      EXPECT_EQ(all_logits(opened, tokens, step), wanted) << eighth << "/8, " << step << " tokens";
    }
  }
}

TEST(QsfExpertsModel, EveryBudgetGivesTheGgufsLogits) {
  const MadeMixture file(4);
  std::vector<int32_t> tokens = mixture_tokens();
  tokens.resize(24);
  expect_same_logits(file.path, tokens);
}

TEST(QsfExpertsModel, FamiliesGiveTheGgufsLogits) {
  for (const char* name : {"qwen3moe", "llama-moe", "llama4-chunks", "granitemoe"}) {
    expect_same_logits(own_folder("families") + "/" + name + ".gguf",
                       {1, 17, 29, 45, 31, 8, 12, 50});
    if (testing::Test::HasFailure()) FAIL() << name;
  }
}

TEST(QsfExpertsModel, RandomBudgetsChangeNoLogit) {
  const MadeMixture gguf(4);
  const RecordsFile file(gguf.path);
  Opened whole = open_model(gguf.path, records_options(0));
  ASSERT_NE(whole.session, nullptr);
  const uint64_t least = smallest_budget(file.path, records_options(0));
  Opened opened = open_model(file.path, records_options(least));
  ASSERT_NE(opened.session, nullptr);
  random_budgets_keep_logits(opened, whole, least, {.seed = 11, .operations = 40});
}

}  // namespace
}  // namespace sluice::test
