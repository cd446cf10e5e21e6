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

}  // namespace
}  // namespace sluice::test
