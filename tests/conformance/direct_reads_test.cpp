// Direct reads: compute threads read streamed weights themselves. Logits are bit-identical whoever
// reads, whenever the engine changes between the two ways, and if a read fails in the middle of a
// layer.
#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <memory>
#include <vector>

#include "../paths.h"
#include "native/model_file.h"

namespace sluice {
namespace {

using residency::DirectReads;
using residency::FillState;
using session::Token;

const std::vector<Token> kPrompt = {1, 17, 29, 45, 31, 8, 12, 77};

// Reads from the file; from call `fail_at` on every read fails.
class Reader final : public session::RangeReader {
 public:
  Reader(io::ByteSource& source, int64_t fail_at) : source_(source), fail_at_(fail_at) {}
  bool read(uint32_t, uint64_t offset, std::span<uint8_t> out) override {
    return calls_++ < fail_at_ && source_.read(offset, out).ok();
  }
  [[nodiscard]] int64_t calls() const { return calls_; }

 private:
  io::ByteSource& source_;
  const int64_t fail_at_;
  std::atomic<int64_t> calls_{0};
};

struct Told {
  std::vector<float> logits;  // of all tokens
  uint64_t own_bytes = 0;
  int64_t reads = 0;
};

struct Setting {
  std::string model;
  DirectReads own = DirectReads::kNone;
  uint64_t budget = 0;
  int64_t fail_at = INT64_MAX;
  FillState filled = residency::kFillLocal;  // state that the driver reports for its fills
  uint32_t fast = 20000, slow = 20000;       // read rates, alternating every twenty operations
  int32_t per_pass = 1;
};

// Serves the requests from `taken` on; returns where it stopped.
uint32_t serve(residency::FillQueue& queue, io::ByteSource& source, uint32_t taken,
               FillState filled) {
  for (; taken != queue.pushed; ++taken) {
    residency::FillRequest& r = queue.ring[taken % residency::kFillCapacity];
    uint32_t pending = residency::kFillPending;
    if (!r.state.compare_exchange_strong(pending, residency::kFillTaken)) continue;
    uint8_t* dst = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(r.dst));
    EXPECT_TRUE(source.read(r.offset, {dst, r.length}).ok());
    r.state = filled;
  }
  return taken;
}

// Runs with a driver in the engine's thread, which serves the queue whenever the engine waits.
Told run(const Setting& setting) {
  Told out;
  auto header = native::read_header(setting.model, {});
  EXPECT_TRUE(header.ok());
  io::ByteSource& source = *header->sources[0];
  Reader reader(source, setting.fail_at);
  session::EngineOptions options;
  options.n_ctx = 64;
  options.n_threads = 2;
  options.memory_budget = setting.budget;
  options.reader = &reader;
  options.direct_reads = setting.own;
  auto engine = session::Engine::open(header->header, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  if (!engine.ok()) return out;
  auto session = session::Session::create((*engine)->context());
  EXPECT_TRUE(session.ok());
  residency::FillQueue& queue = (*engine)->residency().requests().queue();
  uint32_t taken = 0;
  for (size_t t = 0; t < kPrompt.size(); t += static_cast<size_t>(setting.per_pass)) {
    const std::span<const Token> tokens(&kPrompt[t], static_cast<size_t>(setting.per_pass));
    EXPECT_TRUE((*session)->begin(tokens).ok());
    for (int n = 0;; ++n) {
      queue.rate = n / 20 % 2 == 0 ? setting.fast : setting.slow;
      const session::Step step = (*session)->step(1);
      if (step == session::Step::kDone) break;
      EXPECT_LT(n, 100'000);
      if (step != session::Step::kBlocked || n > 100'000) continue;
      taken = serve(queue, source, taken, setting.filled);
    }
    const std::span<const float> row = (*session)->logits();
    out.logits.insert(out.logits.end(), row.begin(), row.end());
  }
  out.own_bytes = (*engine)->residency().counts().own_bytes;
  out.reads = reader.calls();
  return out;
}

// For a dense model and for a mixture of experts.
class DirectReadsTest : public testing::TestWithParam<const char*> {
 protected:
  const std::string model_ = sluice::test::source_dir() + GetParam();
  void SetUp() override {
    session::EngineOptions options;
    options.n_ctx = 64;
    options.n_threads = 2;
    auto header = native::read_header(model_, {});
    ASSERT_TRUE(header.ok());
    auto found = session::inspect(header->header, options);
    ASSERT_TRUE(found.ok());
    budget_ = (found->plan.budget.minimum + found->plan.total()) / 2;
    resident_ = run({.model = model_});
    ASSERT_FALSE(resident_.logits.empty());
    ASSERT_EQ(resident_.own_bytes, 0u);
  }
  uint64_t budget_ = 0;
  Told resident_;
};

TEST_P(DirectReadsTest, GiveTheLogitsOfResidentWeights) {
  for (const int32_t per_pass : {1, 4}) {
    const Told expected = run({.model = model_, .per_pass = per_pass});
    for (const DirectReads own : {DirectReads::kOnceLocal, DirectReads::kAlways}) {
      const Told got = run({.model = model_, .own = own, .budget = budget_, .per_pass = per_pass});
      EXPECT_GT(got.own_bytes, 0u);
      EXPECT_EQ(got.logits, expected.logits) << per_pass << " tokens a pass";
    }
  }
}

TEST_P(DirectReadsTest, WaitUntilTheDriverHasReadAllUnitsLocally) {
  const Told got = run({.model = model_,
                        .own = DirectReads::kOnceLocal,
                        .budget = budget_,
                        .filled = residency::kFillDone});
  EXPECT_EQ(got.reads, 0);
  EXPECT_EQ(got.logits, resident_.logits);
}

TEST_P(DirectReadsTest, AreLeftToTheDriverOnASlowDevice) {
  const Told never = run(
      {.model = model_, .own = DirectReads::kAlways, .budget = budget_, .fast = 500, .slow = 500});
  EXPECT_EQ(never.reads, 0);
  EXPECT_EQ(never.logits, resident_.logits);
  const Told in_turns =
      run({.model = model_, .own = DirectReads::kAlways, .budget = budget_, .slow = 500});
  EXPECT_GT(in_turns.reads, 0);
  EXPECT_EQ(in_turns.logits, resident_.logits);
}

TEST_P(DirectReadsTest, HelpTheDriverOnASlowDevice) {
  const Setting helping = {
      .model = model_, .own = DirectReads::kOnceLocal, .budget = budget_, .fast = 500, .slow = 500};
  const Told got = run(helping);
  EXPECT_GT(got.reads, 0);
  EXPECT_EQ(got.own_bytes, 0u);
  EXPECT_EQ(got.logits, resident_.logits);
  for (int64_t fail_at = 0; fail_at < got.reads; fail_at += 1 + got.reads / 20) {
    Setting failing = helping;
    failing.fail_at = fail_at;
    const Told mended = run(failing);
    EXPECT_EQ(mended.logits, resident_.logits) << "failed at read " << fail_at;
    EXPECT_LE(mended.reads, fail_at + 2) << "one attempt per thread";
  }
}

TEST_P(DirectReadsTest, MayFailAtAnyMoment) {
  const int64_t reads =
      run({.model = model_, .own = DirectReads::kAlways, .budget = budget_}).reads;
  ASSERT_GT(reads, 100);
  for (int64_t fail_at = 0; fail_at < reads; fail_at += 1 + reads / 40) {
    const Told got =
        run({.model = model_, .own = DirectReads::kAlways, .budget = budget_, .fail_at = fail_at});
    EXPECT_EQ(got.logits, resident_.logits) << "failed at read " << fail_at;
    EXPECT_LE(got.reads, fail_at + 2) << "one attempt per thread";
  }
}

// Experts that an abandoned pass waited for must not keep slots from the next one.
TEST(MixtureOfExperts, ContinuesAfterAnAbandonedPass) {
  auto header =
      native::read_header(sluice::test::source_dir() + "/tests/data/families/qwen3moe.gguf", {});
  ASSERT_TRUE(header.ok());
  session::EngineOptions options;
  options.n_ctx = 64;
  options.memory_budget = session::inspect(header->header, options)->plan.budget.minimum;
  for (int given_up = 0, waits = 1; given_up < waits; ++given_up) {
    auto engine = session::Engine::open(header->header, options);
    ASSERT_TRUE(engine.ok());
    auto session = session::Session::create((*engine)->context());
    ASSERT_TRUE(session.ok());
    residency::FillQueue& queue = (*engine)->residency().requests().queue();
    uint32_t taken = 0;
    const auto pass = [&](int max_waits) {
      EXPECT_TRUE((*session)->begin(kPrompt).ok());
      int n = 0;
      while ((*session)->step(0) != session::Step::kDone && n < max_waits) {
        const uint32_t before = taken;
        taken = serve(queue, *header->sources[0], taken, residency::kFillDone);
        if (taken == before) ADD_FAILURE() << "abandoned at wait " << given_up << ": nothing moves";
        if (taken == before) break;
        ++n;
      }
      return n;
    };
    pass(given_up);
    (*session)->clear();
    waits = pass(INT_MAX);
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DirectReadsTest,
                         testing::Values("/examples/models/sluice-tales-Q4_0.gguf",
                                         "/tests/data/families/qwen3moe.gguf"),
                         [](const auto& info) {
                           return info.index == 0 ? "Dense" : "MixtureOfExperts";
                         });

}  // namespace
}  // namespace sluice
