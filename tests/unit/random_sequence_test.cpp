// Random sequences: the same seed gives the same operations whichever are dropped, and a failing
// sequence is shrunk to the operations that it needs.
#include "../random_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace sluice::test {
namespace {

using Numbers = std::vector<uint32_t>;

TEST(RandomSequence, AnOperationDrawsTheSameWhenOthersAreDropped) {
  const auto drawn = [](uint64_t seed, Numbers numbers) {
    std::map<uint32_t, uint64_t> out;
    RandomSequence sequence(seed, numbers);
    size_t i = 0;
    sequence.run([&](std::mt19937_64& random) { out[numbers[i++]] = random(); });
    return out;
  };
  const auto all = drawn(5, {0, 1, 2, 3, 4}), some = drawn(5, {1, 4});
  EXPECT_EQ(some.at(1), all.at(1));
  EXPECT_EQ(some.at(4), all.at(4));
  EXPECT_NE(all.at(1), all.at(4));
  EXPECT_NE(all, drawn(6, {0, 1, 2, 3, 4}));
}

TEST(RandomSequence, ShrinksToWhatIsNeeded) {
  Numbers all;
  for (uint32_t i = 0; i < 100; ++i) all.push_back(i);
  const Numbers needed = {3, 40, 41, 99};
  int runs = 0;
  const Numbers found = shrink(all, [&](const Numbers& operations) {
    ++runs;
    return std::includes(operations.begin(), operations.end(), needed.begin(), needed.end());
  });
  EXPECT_EQ(found, needed);
  EXPECT_LT(runs, 100);
  EXPECT_EQ(shrink(all, [](const Numbers&) { return true; }), Numbers());
  EXPECT_EQ(shrink(all, [](const Numbers&) { return false; }), all);
  EXPECT_EQ(shrink({}, [](const Numbers&) { return true; }), Numbers());
}

TEST(RandomSequence, AFailureIsReportedWithWhatReplaysIt) {
  const auto body = [](RandomSequence& sequence) {
    int held = 0;
    sequence.run([&](std::mt19937_64& random) {
      const bool adds = random() % 2 == 0;
      sequence.note(adds ? "add" : "nothing");
      held += adds ? 1 : 0;
      EXPECT_LT(held, 3) << "three are too many";
    });
  };
  Numbers all;
  for (uint32_t i = 0; i < 40; ++i) all.push_back(i);
  RandomSequence failed(7, all);
  failed.perform(body);
  ASSERT_TRUE(failed.failed());
  const std::string report = shortest_failure(failed, body);
  EXPECT_NE(report.find("seed 7: 3 of 40 operations still fail"), std::string::npos) << report;
  EXPECT_NE(report.find("three are too many"), std::string::npos) << report;
  EXPECT_NE(report.find("SLUICE_RANDOM_SEED=7 SLUICE_RANDOM_SEQUENCES=1 SLUICE_RANDOM_ONLY="),
            std::string::npos)
      << report;
  EXPECT_EQ(report.find("nothing"), std::string::npos) << report;
}

// Threads and processes may interfere at another moment when the operations run again.
TEST(RandomSequence, AFailureThatDoesNotRepeatIsReportedAsItWas) {
  int runs = 0;
  const auto body = [&runs](RandomSequence& sequence) {
    sequence.run([&](std::mt19937_64&) { sequence.note("an operation"); });
    EXPECT_GT(++runs, 1) << "only once";
  };
  RandomSequence failed(3, {0, 1});
  failed.perform(body);
  const std::string report = shortest_failure(failed, body);
  EXPECT_NE(report.find("seed 3: 2 of 2 operations still fail"), std::string::npos) << report;
  EXPECT_NE(report.find("operation 1: an operation"), std::string::npos) << report;
  EXPECT_NE(report.find("only once"), std::string::npos) << report;
}

TEST(RandomSequence, ARunEndsAtItsFirstFailure) {
  RandomSequence sequence(1, {0, 1, 2});
  int performed = 0;
  sequence.perform([&](RandomSequence& s) {
    s.run([&](std::mt19937_64&) {
      ++performed;
      ADD_FAILURE() << "the first";
    });
  });
  EXPECT_EQ(performed, 1);
  EXPECT_TRUE(sequence.failed());
  EXPECT_NE(sequence.message().find("the first"), std::string::npos);
}

}  // namespace
}  // namespace sluice::test
