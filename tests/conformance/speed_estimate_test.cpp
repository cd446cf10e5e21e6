// The speed estimate: its inputs, and that it predicts nothing without them.
#include "session/speed_estimate.h"

#include <gtest/gtest.h>

#include <map>

#include "fixtures_util.h"

namespace sluice::test {
namespace {

using session::ReadSpeed;

class Speed : public testing::Test {
 protected:
  void inspect(const char* folder, const char* name, uint64_t spare) {
    const std::string path = own_folder(folder) + "/" + name;
    auto header = native::read_header(path, {});
    ASSERT_TRUE(header.ok()) << header.status().message();
    header_ = std::move(*header);
    session::EngineOptions options;
    options.n_ctx = 64;
    options.n_threads = 2;
    if (spare > 0) options.memory_budget = smallest_budget(path, options) + spare;
    auto found = session::inspect(header_.header, options);
    ASSERT_TRUE(found.ok()) << found.status().message();
    found_ = std::move(*found);
  }

  native::ModelHeader header_;
  session::Inspection found_;
};

TEST_F(Speed, ResidentModelIsLimitedByComputeOnly) {
  inspect("arch", "llama-gqa.gguf", 0);
  const session::Prediction p = predict(found_, ReadSpeed{});
  EXPECT_GT(p.compute_ms, 0);
  EXPECT_EQ(p.token_ms, p.compute_ms);
}

TEST_F(Speed, StreamingFromAnUnknownStoreIsNotPredicted) {
  inspect("arch", "llama-gqa.gguf", 1);
  ASSERT_GT(found_.plan.weights.streamed_bytes, 0u);
  const session::Prediction p = predict(found_, ReadSpeed{});
  EXPECT_GT(p.compute_ms, 0);
  EXPECT_EQ(p.token_ms, 0);
  std::map<std::string, double> said;
  report_speed(found_, ReadSpeed{}, [&](const char*, const char* key, const auto& value) {
    said[key] = std::get<double>(value);
  });
  EXPECT_EQ(said.count("computeTokensPerSecond"), 1u);
  EXPECT_EQ(said.size(), 1u);
}

TEST_F(Speed, ASlowStoreIsTheLimit) {
  inspect("arch", "llama-gqa.gguf", 1);
  const double bytes = static_cast<double>(found_.plan.weights.streamed_bytes);
  const session::Prediction p = predict(found_, ReadSpeed{bytes / 10, 0, false});  // ten seconds
  EXPECT_NEAR(p.token_ms, 10'000, 1);
}

TEST_F(Speed, AMixtureReadsOnlyTheExpertsOfAToken) {
  inspect("families", "llama-moe.gguf", 1);
  const double bytes = static_cast<double>(found_.plan.weights.streamed_bytes);
  const session::Prediction p = predict(found_, ReadSpeed{bytes / 10, 0, false});
  EXPECT_LT(p.token_ms, 9'000);
  EXPECT_GT(p.token_ms, 1'000);
}

// A mixture of 2 layers with 4 experts, of which a token uses 2.
TEST_F(Speed, TheHitRateOfExpertsDecidesWhatATokenReads) {
  inspect("families", "llama-moe.gguf", 200'000);
  const residency::Plan& plan = found_.plan.weights;
  double all = 0, pinned = 0;
  for (const residency::Expert& e : plan.experts) {
    for (uint32_t u = e.first_unit; u < e.end_unit; ++u) {
      all += static_cast<double>(plan.units[u].bytes);
      if (plan.units[u].pinned) pinned += static_cast<double>(plan.units[u].bytes);
    }
  }
  const session::StreamedBytes streamed = session::streamed_bytes(found_);
  EXPECT_GT(streamed.in_memory, 0);
  EXPECT_LT(streamed.in_memory, 1);
  EXPECT_EQ(streamed.in_memory, pinned / all);
  EXPECT_EQ(streamed.dense + all - pinned, static_cast<double>(plan.streamed_bytes));
  EXPECT_EQ(streamed.experts, all / 2);
  EXPECT_EQ(streamed.per_token(1), streamed.dense);
  EXPECT_EQ(streamed.per_token(0.25), streamed.dense + 0.75 * all / 2);
  const double uniform = streamed.in_memory;
  EXPECT_NEAR(streamed.per_token(uniform), streamed.dense + (all - pinned) / 2, 1e-6);
  // Expert reads overlap with the experts' share of computing only.
  const ReadSpeed slow{1000, 0, false};
  EXPECT_EQ(predict(found_, slow).hit_rate, uniform);
  for (const double hits : {uniform, 0.25}) {
    const session::Prediction p = predict(found_, slow, hits);
    const double bytes = streamed.per_token(hits);  // a byte takes 1 ms
    EXPECT_GE(p.token_ms, bytes);
    EXPECT_NEAR(p.token_ms, bytes, 1e-3 * bytes);
  }
}

TEST_F(Speed, ReportsWhatItAssumesOfAMixture) {
  inspect("families", "llama-moe.gguf", 200'000);
  std::map<std::string, session::ReportValue> said;
  const auto sink = [&](const char*, const char* key, const auto& value) { said[key] = value; };
  report_speed(found_, ReadSpeed{1000, 0, false}, sink, 0.25);
  const session::StreamedBytes streamed = session::streamed_bytes(found_);
  EXPECT_EQ(std::get<double>(said["expertsInMemory"]), streamed.in_memory);
  EXPECT_EQ(std::get<double>(said["expertHitRate"]), 0.25);
  EXPECT_EQ(std::get<double>(said["bytesReadPerToken"]), streamed.per_token(0.25));
  const double rate = 1000 / streamed.per_token(0.25);
  EXPECT_NEAR(std::get<double>(said["tokensPerSecond"]), rate, 1e-3 * rate);
  inspect("families", "llama-moe.gguf", 0);
  said.clear();
  report_speed(found_, ReadSpeed{}, sink);
  EXPECT_EQ(std::get<double>(said["expertsInMemory"]), 1);
  EXPECT_EQ(std::get<double>(said["expertHitRate"]), 1);
  EXPECT_EQ(std::get<double>(said["bytesReadPerToken"]), 0);
}

}  // namespace
}  // namespace sluice::test
