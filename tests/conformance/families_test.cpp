// Every model family compared with its reference: logits of every position and greedy tokens, on
// every instruction set of this machine, for one thread and several, resident and at the smallest
// budget. Results are bit-identical for any budget, threads and batch length.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../extent.h"
#include "../sanitized.h"
#include "fixtures_util.h"

namespace sluice::test {
namespace {

constexpr double kLogitsNmse = 1e-4;  // for any position

struct FamilyCase {
  Reference reference;
  const char* kernels;
};

std::vector<FamilyCase> family_cases() {
  std::vector<FamilyCase> out;
  const auto add = [&out](std::vector<Reference> references, const char* group) {
    for (Reference& r : references) {
      r.name = group + r.name;
      for (const char* const* name = kernels::available(); *name != nullptr; ++name) {
        out.push_back({r, *name});
        if (kSanitized) break;  // only the best table: the kernels' tests cover the others
      }
    }
  };
  add(read_manifest(fixture_folder("arch")), "");
  add(read_manifest(own_folder("families")), "");
  // Families hardly differ in how they use threads.
  const size_t step = kSanitized && !long_suite() ? 3 : 1;
  const std::vector<std::string> all = further_families();
  std::vector<std::string> further;
  for (size_t i = 0; i < all.size(); i += step) further.push_back(all[i]);
  add(read_manifest(shared_folder("families"), &further), "further_");
  return out;
}

session::EngineOptions options_for(const Reference& r, const char* kernels, int threads) {
  session::EngineOptions options;
  options.n_ctx = static_cast<int32_t>(r.prompt.size() + r.greedy.size());
  options.n_threads = threads;
  options.logits_rows = static_cast<int32_t>(r.rows());
  options.kernels = kernels;
  return options;
}

class FamilyTest : public testing::TestWithParam<FamilyCase> {};

TEST_P(FamilyTest, LogitsOfEveryPositionMatch) {
  const Reference& r = GetParam().reference;
  Opened opened = open_model(r.path, options_for(r, GetParam().kernels, 1));
  ASSERT_NE(opened.session, nullptr);
  EXPECT_STREQ(opened.model->engine().table().name, GetParam().kernels);
  const std::vector<float> ours = all_logits(opened, r.prompt, r.rows());
  ASSERT_EQ(ours.size(), r.logits.size());
  const size_t n = static_cast<size_t>(r.n_vocab);
  for (size_t t = 0; t < r.rows(); ++t) {
    EXPECT_LE(nmse(&ours[t * n], &r.logits[t * n], n), kLogitsNmse) << "position " << t;
  }
}

// A token may differ only where the reference's lead is below our error; after that the texts
// differ.
TEST_P(FamilyTest, GreedyTokensMatchWhereTheLeadAllows) {
  const Reference& r = GetParam().reference;
  for (const int threads : {1, 3}) {
    Opened opened = open_model(r.path, options_for(r, GetParam().kernels, threads));
    ASSERT_NE(opened.session, nullptr);
    std::vector<float> lead;
    const std::vector<int32_t> ours = greedy(opened, r.prompt, r.greedy.size(), &lead);
    ASSERT_EQ(ours.size(), r.greedy.size());
    const auto [mine, theirs] = std::mismatch(ours.begin(), ours.end(), r.greedy.begin());
    if (mine == ours.end()) continue;
    const size_t at = static_cast<size_t>(mine - ours.begin());
    // Error of a logit: the tolerance times the RMS of the logits.
    double size = 0;
    for (const float x : r.logits) size += static_cast<double>(x) * x;
    const double rms = std::sqrt(size / static_cast<double>(r.logits.size()));
    EXPECT_LT(lead[at], 4 * std::sqrt(kLogitsNmse) * rms)
        << "token " << at << " is " << *mine << ", not " << *theirs;
    EXPECT_LT(r.min_gap, 4 * std::sqrt(kLogitsNmse) * rms) << "token " << at;
  }
}

TEST_P(FamilyTest, BudgetThreadsAndPassLengthChangeNoBit) {
  const Reference& r = GetParam().reference;
  session::EngineOptions options = options_for(r, GetParam().kernels, 1);
  Opened resident = open_model(r.path, options);
  ASSERT_NE(resident.session, nullptr);
  const std::vector<float> expected = all_logits(resident, r.prompt, r.rows());
  const auto same = [&](const session::EngineOptions& other, size_t step, const char* what) {
    Opened opened = open_model(r.path, other);
    ASSERT_NE(opened.session, nullptr) << what;
    const std::vector<float> ours = all_logits(opened, r.prompt, step);
    ASSERT_EQ(ours.size(), expected.size()) << what;
    EXPECT_EQ(std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)), 0)
        << what << ": NMSE " << nmse(ours.data(), expected.data(), ours.size());
  };
  options.n_threads = 3;
  same(options, r.rows(), "three threads");
  same(options, 1, "token by token");
  same(options, 7, "seven tokens a pass");
  options.n_threads = 2;
  options.logits_rows = 1;
  options.memory_budget = smallest_budget(r.path, options);
  same(options, 1, "the smallest budget");
  options.logits_rows = 4;
  options.memory_budget = options.memory_budget * 3 / 2;
  same(options, 1, "1.5 times the smallest budget");
}

// The budget changes up and down, between tokens and in mid-pass, while a session is open.
TEST_P(FamilyTest, BudgetsThatChangeWhileLoadedChangeNoBit) {
  const Reference& r = GetParam().reference;
  session::EngineOptions options = options_for(r, GetParam().kernels, 2);
  options.logits_rows = 1;
  options.n_checkpoints = 2;  // their memory stays with the session
  Opened resident = open_model(r.path, options);
  ASSERT_NE(resident.session, nullptr);
  const std::vector<float> expected = all_logits(resident, r.prompt, 1);
  Opened opened = open_model(r.path, options);
  ASSERT_NE(opened.session, nullptr);
  native::Model& model = *opened.model;
  const session::MemoryPlan& plan = model.engine().plan();
  const uint64_t least = smallest_budget(r.path, options);
  const uint64_t budgets[] = {least, least * 5 / 4, 0, least * 3 / 2, least};
  std::vector<float> ours;
  for (size_t t = r.source(); t < r.prompt.size(); ++t) {
    const uint64_t budget = budgets[t % std::size(budgets)];
    const int32_t row = static_cast<int32_t>(t);
    const size_t before = t == r.source() ? t : 0;
    ASSERT_TRUE((r.causal ? opened.session->begin({&r.prompt[t - before], before + 1})
                          : opened.session->begin_rows(r.prompt, row, 1))
                    .ok());
    for (size_t i = 0; i < t % 7; ++i) static_cast<void>(opened.session->step(1));
    const Status changed = model.set_memory_budget(budget);
    ASSERT_TRUE(changed.ok()) << changed.message();
    EXPECT_TRUE(budget == 0 || plan.total() <= budget);
    ASSERT_TRUE(model.run(*opened.session).ok());
    const auto logits = opened.session->logits();
    ours.insert(ours.end(), logits.begin(), logits.end());
  }
  ASSERT_EQ(ours.size(), expected.size());
  EXPECT_EQ(std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)), 0);
  EXPECT_EQ(model.set_memory_budget(least / 8).code(), Code::kBudgetTooSmall);
  EXPECT_EQ(opened.session->position(), static_cast<int32_t>(r.prompt.size()));
}

// Test cases come from fixtures, so these must exist.
TEST(Families, FixturesExist) {
  EXPECT_GE(read_manifest(fixture_folder("arch")).size(), 5u);
  EXPECT_GE(read_manifest(own_folder("families")).size(), 20u);
  EXPECT_GE(family_cases().size(), 25u);
}

std::string family_name(const testing::TestParamInfo<FamilyCase>& info) {
  std::string name = info.param.reference.name + "_" + info.param.kernels;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest, testing::ValuesIn(family_cases()), family_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FamilyTest);

}  // namespace
}  // namespace sluice::test
