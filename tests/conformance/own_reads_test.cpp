// Own reads: the threads that compute read streamed weights themselves. Whoever read them, whenever
// the engine changes from one way to the other, and when such a read fails in the middle of a
// layer, the logits are the same to the bit.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "native/model_file.h"

namespace sluice {
namespace {

using residency::FillState;
using residency::OwnReads;
using session::Token;

const std::string kModel =
    std::string(SLUICE_SOURCE_DIR) + "/examples/models/sluice-tales-Q4_0.gguf";
const std::vector<Token> kTokens = {1, 17, 290, 45, 311, 8, 120, 77};

// Reads from the file; from call `fail_at` on, nothing any more.
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
  OwnReads own = OwnReads::kNone;
  uint64_t budget = 0;
  int64_t fail_at = INT64_MAX;
  FillState filled = residency::kFillLocal;  // what the driver says of its fills
  uint32_t fast = 20000, slow = 20000;       // rates, in turns of three operations
  int32_t per_pass = 1;
};

// A driver in the thread of the engine: it serves the queue whenever the engine waits.
Told run(const Setting& setting) {
  Told out;
  auto header = native::read_header(kModel, {});
  EXPECT_TRUE(header.ok());
  io::ByteSource& source = *header->sources[0];
  Reader reader(source, setting.fail_at);
  session::EngineOptions options;
  options.n_ctx = 64;
  options.n_threads = 2;
  options.memory_budget = setting.budget;
  options.reader = &reader;
  options.own_reads = setting.own;
  auto engine = session::Engine::open(header->header, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  if (!engine.ok()) return out;
  auto session = session::Session::create(**engine);
  EXPECT_TRUE(session.ok());
  residency::FillQueue& queue = (*engine)->residency().queue();
  uint32_t taken = 0;
  for (size_t t = 0; t < kTokens.size(); t += static_cast<size_t>(setting.per_pass)) {
    const std::span<const Token> tokens(&kTokens[t], static_cast<size_t>(setting.per_pass));
    EXPECT_TRUE((*session)->begin(tokens).ok());
    for (int n = 0;; ++n) {
      queue.rate = n / 3 % 2 == 0 ? setting.fast : setting.slow;
      const session::Step step = (*session)->step(1);
      if (step == session::Step::kDone) break;
      EXPECT_LT(n, 100'000);
      if (step != session::Step::kBlocked || n > 100'000) continue;
      for (; taken != queue.pushed; ++taken) {
        residency::FillRequest& r = queue.ring[taken % residency::kFillCapacity];
        uint32_t pending = residency::kFillPending;
        if (!r.state.compare_exchange_strong(pending, residency::kFillTaken)) continue;
        uint8_t* dst = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(r.dst));
        EXPECT_TRUE(source.read(r.offset, {dst, r.length}).ok());
        r.state = setting.filled;
      }
    }
    const std::span<const float> row = (*session)->logits();
    out.logits.insert(out.logits.end(), row.begin(), row.end());
  }
  out.own_bytes = (*engine)->residency().own_bytes();
  out.reads = reader.calls();
  return out;
}

class OwnReadsTest : public testing::Test {
 protected:
  void SetUp() override {
    session::EngineOptions options;
    options.n_ctx = 64;
    options.n_threads = 2;
    auto header = native::read_header(kModel, {});
    ASSERT_TRUE(header.ok());
    auto found = session::inspect(header->header, options);
    ASSERT_TRUE(found.ok());
    budget_ = (found->plan.minimum + found->plan.total()) / 2;
    resident_ = run({});
    ASSERT_FALSE(resident_.logits.empty());
    ASSERT_EQ(resident_.own_bytes, 0u);
  }
  uint64_t budget_ = 0;
  Told resident_;
};

TEST_F(OwnReadsTest, GiveTheLogitsOfResidentWeights) {
  for (const int32_t per_pass : {1, 4}) {
    const Told expected = run({.per_pass = per_pass});
    for (const OwnReads own : {OwnReads::kOnceLocal, OwnReads::kAlways}) {
      const Told got = run({.own = own, .budget = budget_, .per_pass = per_pass});
      EXPECT_GT(got.own_bytes, 0u);
      EXPECT_EQ(got.logits, expected.logits) << per_pass << " tokens a pass";
    }
  }
}

TEST_F(OwnReadsTest, AreLeftToTheDriverUntilItHasSeenAllUnitsInTheFile) {
  const Told got =
      run({.own = OwnReads::kOnceLocal, .budget = budget_, .filled = residency::kFillDone});
  EXPECT_EQ(got.reads, 0);
  EXPECT_EQ(got.logits, resident_.logits);
}

TEST_F(OwnReadsTest, AreLeftToTheDriverWhereADeviceIsWaitedFor) {
  const Told never = run({.own = OwnReads::kAlways, .budget = budget_, .fast = 500, .slow = 500});
  EXPECT_EQ(never.reads, 0);
  EXPECT_EQ(never.logits, resident_.logits);
  const Told in_turns = run({.own = OwnReads::kAlways, .budget = budget_, .slow = 500});
  EXPECT_GT(in_turns.reads, 0);
  EXPECT_EQ(in_turns.logits, resident_.logits);
}

TEST_F(OwnReadsTest, HelpTheDriverThen) {
  const Setting helping = {
      .own = OwnReads::kOnceLocal, .budget = budget_, .fast = 500, .slow = 500};
  const Told got = run(helping);
  EXPECT_GT(got.reads, 0);
  EXPECT_EQ(got.own_bytes, 0u);
  EXPECT_EQ(got.logits, resident_.logits);
  for (int64_t fail_at = 0; fail_at < got.reads; fail_at += 1 + got.reads / 20) {
    Setting failing = helping;
    failing.fail_at = fail_at;
    const Told mended = run(failing);
    EXPECT_EQ(mended.logits, resident_.logits) << "failed at read " << fail_at;
    EXPECT_LE(mended.reads, fail_at + 2) << "one try of each thread";
  }
}

TEST_F(OwnReadsTest, MayFailAtAnyMoment) {
  const int64_t reads = run({.own = OwnReads::kAlways, .budget = budget_}).reads;
  ASSERT_GT(reads, 100);
  for (int64_t fail_at = 0; fail_at < reads; fail_at += 1 + reads / 40) {
    const Told got = run({.own = OwnReads::kAlways, .budget = budget_, .fail_at = fail_at});
    EXPECT_EQ(got.logits, resident_.logits) << "failed at read " << fail_at;
    EXPECT_LE(got.reads, fail_at + 2) << "one try of each thread";
  }
}

}  // namespace
}  // namespace sluice
