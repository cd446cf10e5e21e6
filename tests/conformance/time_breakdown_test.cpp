// Where the time of forward passes goes: the parts add up to the whole, each is zero exactly where
// the model has nothing of it, and measuring changes no logits.
#include "session/time_breakdown.h"

#include <gtest/gtest.h>

#include <numeric>

#include "fixtures_util.h"
#include "platform/threads.h"
#include "session/batcher.h"

namespace sluice::test {
namespace {

using session::TimePart;
using session::TimeSums;

const std::vector<int32_t> kTokens = {1, 5, 9, 7, 3};

struct Measured {
  TimeSums times;
  std::vector<float> logits;
};

session::EngineOptions options_of(bool on) {
  session::EngineOptions options;
  options.n_ctx = 32;
  options.n_threads = 2;
  options.logits_rows = 2;
  options.time_breakdown = on;
  return options;
}

Measured measure(const std::string& path, const session::EngineOptions& options) {
  const double start = monotonic_ms();
  Opened opened = open_model(path, options);
  Measured out;
  if (opened.session == nullptr) return out;
  out.logits = all_logits(opened, kTokens, 2);
  out.times = opened.model->engine().passes().times().sums();
  const double sum = std::accumulate(out.times.parts.begin(), out.times.parts.end(), 0.0);
  EXPECT_NEAR(sum, out.times.total, 1e-6);
  EXPECT_LE(out.times.total, monotonic_ms() - start);
  return out;
}

// The parts that took time, without waiting and GPU.
void expect_parts(const TimeSums& times, std::vector<TimePart> parts) {
  parts.push_back(TimePart::kAttention);
  parts.push_back(TimePart::kOther);
  for (const TimePart part :
       {TimePart::kDecompress, TimePart::kProjections, TimePart::kFeedForward, TimePart::kExperts,
        TimePart::kOutput, TimePart::kAttention, TimePart::kGpu, TimePart::kOther}) {
    const bool there = std::find(parts.begin(), parts.end(), part) != parts.end();
    EXPECT_EQ(times[part] > 0, there) << session::kTimePartNames[static_cast<size_t>(part)];
    EXPECT_GE(times[part], 0);
  }
}

TEST(TimeBreakdown, ADenseModel) {
  const std::string path = own_folder("arch") + "/llama-gqa.gguf";
  const Measured on = measure(path, options_of(true));
  expect_parts(on.times, {TimePart::kProjections, TimePart::kFeedForward, TimePart::kOutput});
  const Measured off = measure(path, options_of(false));
  EXPECT_EQ(off.times.total, 0);
  EXPECT_EQ(off.logits, on.logits);
}

TEST(TimeBreakdown, AMixtureOfExperts) {
  const Measured on = measure(own_folder("families") + "/llama-moe.gguf", options_of(true));
  expect_parts(on.times, {TimePart::kProjections, TimePart::kExperts, TimePart::kOutput});
}

TEST(TimeBreakdown, StreamedWeights) {
  const std::string path = own_folder("arch") + "/llama-gqa.gguf";
  session::EngineOptions options = options_of(true);
  options.memory_budget = smallest_budget(path, options);
  const Measured on = measure(path, options);
  EXPECT_GT(on.times[TimePart::kWait], 0);
  expect_parts(on.times, {TimePart::kProjections, TimePart::kFeedForward, TimePart::kOutput});
}

TEST(TimeBreakdown, CompressedLayers) {
  // A mixture, and one whose layers are dense in turns.
  for (const auto& [name, dense] : {std::pair{"zstd.qsf", false}, {"lz4.qsf", true}}) {
    SCOPED_TRACE(name);
    const std::string path = own_folder("qsf") + "/" + name;
    session::EngineOptions options = options_of(true);
    for (const bool small : {false, true}) {
      if (small) options.memory_budget = smallest_budget(path, options);
      const Measured on = measure(path, options);
      EXPECT_GT(on.times[TimePart::kWait], 0);
      std::vector<TimePart> parts = {TimePart::kProjections, TimePart::kExperts, TimePart::kOutput};
      if (dense) parts.push_back(TimePart::kFeedForward);
      // LZ4 is the helper thread's alone. With a processor to spare it may do all.
      const bool helped = dense || platform::usable_cpus(/*logical=*/true) > options.n_threads;
      if (!helped) parts.push_back(TimePart::kDecompress);
      expect_parts(on.times, parts);
    }
  }
}

// Only passes that begin while it is on are measured, and each to its end.
TEST(TimeBreakdown, SwitchedBetweenPasses) {
  Opened opened = open_model(own_folder("arch") + "/llama-gqa.gguf", options_of(false));
  ASSERT_NE(opened.session, nullptr);
  session::TimeBreakdown& times = opened.model->engine().passes().times();
  ASSERT_TRUE(opened.session->begin(kTokens).ok());
  times.measure(true);
  ASSERT_TRUE(opened.model->run(*opened.session).ok());
  EXPECT_EQ(times.sums().total, 0);
  ASSERT_TRUE(opened.session->begin(kTokens).ok());
  times.measure(false);
  ASSERT_TRUE(opened.model->run(*opened.session).ok());
  const TimeSums once = times.sums();
  EXPECT_GT(once.total, 0);
  ASSERT_TRUE(opened.session->begin(kTokens).ok());
  ASSERT_TRUE(opened.model->run(*opened.session).ok());
  EXPECT_EQ(times.sums().total, once.total);
}

TEST(TimeBreakdown, ABatchOfSessionsAndACancelledPass) {
  session::EngineOptions options = options_of(true);
  options.parallel = options.n_sessions = 2;
  Opened opened = open_model(own_folder("arch") + "/llama-gqa.gguf", options);
  ASSERT_NE(opened.session, nullptr);
  session::Engine& engine = opened.model->engine();
  auto second = session::Session::create(engine.context());
  ASSERT_TRUE(second.ok());
  session::Batcher batcher(engine.context());
  ASSERT_TRUE(batcher.add(*opened.session).ok() && batcher.add(**second).ok());
  ASSERT_TRUE(opened.session->begin(kTokens).ok() && (*second)->begin(kTokens).ok());
  while (batcher.waiting()) {
    ASSERT_TRUE(opened.model->drive([&](int32_t n) { return batcher.step(n); }).ok());
  }
  TimeSums times = engine.passes().times().sums();
  EXPECT_NEAR(std::accumulate(times.parts.begin(), times.parts.end(), 0.0), times.total, 1e-6);
  expect_parts(times, {TimePart::kProjections, TimePart::kFeedForward, TimePart::kOutput});
  ASSERT_TRUE(opened.session->begin(kTokens).ok());
  EXPECT_EQ(batcher.step(3), session::Step::kProgress);
  opened.session->cancel();
  times = engine.passes().times().sums();
  EXPECT_NEAR(std::accumulate(times.parts.begin(), times.parts.end(), 0.0), times.total, 1e-6);
}

}  // namespace
}  // namespace sluice::test
