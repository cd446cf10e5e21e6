// Layers are offloaded to another device and taken back: the plan, including experts, and the
// logits are what they were before. So is a KV cache that the device had, for all positions or few.
#include <gtest/gtest.h>

#include <cstring>

#include "fixtures_util.h"

namespace sluice::test {
namespace {

std::vector<residency::MatrixKind> kinds_of(const session::Engine& engine) {
  std::vector<residency::MatrixKind> kinds;
  for (const residency::Unit& unit : engine.plan().weights.units) kinds.push_back(unit.kind);
  return kinds;
}

TEST(GpuOffload, AreRestoredWhenTakenBack) {
  const std::vector<std::string> names = {"lfm2", "qwen3moe"};
  const std::vector<Reference> found = read_manifest(fixture_folder("families"), &names);
  ASSERT_EQ(found.size(), names.size());
  for (const Reference& r : found) {
    const char* name = r.name.c_str();
    session::EngineOptions options;
    options.n_ctx = static_cast<int32_t>(r.prompt.size());
    options.n_threads = 2;
    options.memory_budget = smallest_budget(r.path, options) + (1 << 17);
    Opened opened = open_model(r.path, options);
    ASSERT_NE(opened.session, nullptr);
    session::Engine& engine = opened.model->engine();
    const std::vector<residency::MatrixKind> before = kinds_of(engine);
    const uint64_t pinned = engine.plan().weights.pinned_bytes;
    ASSERT_TRUE(engine.replanner().offload_layers(1).ok());
    EXPECT_NE(kinds_of(engine), before) << name;
    ASSERT_TRUE(engine.replanner().offload_layers(0).ok());
    EXPECT_EQ(kinds_of(engine), before) << name;
    EXPECT_EQ(engine.plan().weights.pinned_bytes, pinned) << name;
    const std::vector<float> ours = all_logits(opened, r.prompt, 1);
    Opened other = open_model(r.path, options);
    ASSERT_NE(other.session, nullptr);
    const std::vector<float> expected = all_logits(other, r.prompt, 1);
    ASSERT_EQ(ours.size(), expected.size());
    EXPECT_EQ(std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)), 0) << name;
  }
}

TEST(GpuOffload, AKvCacheIsTakenBack) {
  const std::vector<std::string> names = {"lfm2", "granite_swa"};
  const std::vector<Reference> found = read_manifest(fixture_folder("families"), &names);
  ASSERT_EQ(found.size(), names.size());
  for (const Reference& r : found) {
    const char* name = r.name.c_str();
    const auto n = static_cast<int32_t>(r.prompt.size());
    session::EngineOptions options;
    options.n_ctx = 32768;
    options.n_threads = 2;
    const uint64_t in_memory = smallest_budget(r.path, options);
    Opened whole = open_model(r.path, options);
    ASSERT_NE(whole.session, nullptr);
    const std::vector<float> expected = all_logits(whole, r.prompt, 1);
    const session::MemoryPlan& other = whole.model->engine().plan();
    options.kv_rows = 0;
    options.memory_budget = smallest_budget(r.path, options) + (1 << 17);
    ASSERT_LT(options.memory_budget, in_memory) << name;
    Opened opened = open_model(r.path, options);
    ASSERT_NE(opened.session, nullptr);
    session::Engine& engine = opened.model->engine();
    const session::MemoryPlan& plan = engine.plan();
    EXPECT_EQ(plan.kv.shape.recurrent(), plan.bytes.kv > 0) << name;
    EXPECT_EQ(engine.replanner().hold_kv(options.n_ctx).code(), Code::kBudgetTooSmall) << name;
    EXPECT_TRUE(plan.kv.shape.on_gpu) << name;
    ASSERT_TRUE(engine.replanner().hold_kv(n).ok()) << name;
    EXPECT_FALSE(plan.kv.shape.on_gpu) << name;
    EXPECT_LT(plan.bytes.kv, other.bytes.kv) << name;
    EXPECT_LE(plan.total(), plan.budget.bytes) << name;
    const std::vector<float> ours = all_logits(opened, r.prompt, 1);
    ASSERT_EQ(ours.size(), expected.size());
    EXPECT_EQ(std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)), 0) << name;
  }
}

}  // namespace
}  // namespace sluice::test
