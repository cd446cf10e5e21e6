// Requests for I/O threads: rows first, neighbours in the file together, each exactly once.
#include "native/joined_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace sluice::native {
namespace {

// A file of which only the places matter.
class Places final : public io::ByteSource {
 public:
  explicit Places(uint64_t unknown = UINT64_MAX) : unknown_(unknown) {}
  [[nodiscard]] uint64_t size() const override { return UINT64_MAX; }
  [[nodiscard]] Status read(uint64_t, std::span<uint8_t>) override { return {}; }
  [[nodiscard]] uint64_t place(uint64_t offset, uint64_t) override {
    return offset >= unknown_ ? kNoPlace : offset;
  }

 private:
  uint64_t unknown_;  // offsets from here on have no place
};

class JoinedRequestsTest : public testing::Test {
 protected:
  JoinedRequestsTest() {
    sources_.push_back(std::make_unique<Places>(1'000'000));
    sources_.push_back(std::make_unique<Places>());
  }
  uint32_t push(uint64_t offset, uint32_t length, uint32_t unit = 1, uint32_t file = 0) {
    const uint32_t n = queue_.pushed;
    residency::FillRequest& r = queue_.ring[n % residency::kFillCapacity];
    r.offset = offset;
    r.length = length;
    r.unit = unit;
    r.file = file;
    r.state = residency::kFillPending;
    queue_.pushed = n + 1;
    return n;
  }
  std::vector<uint32_t> take(JoinedRequests& requests) {
    std::array<uint32_t, JoinedRequests::kMax> out{};
    const size_t n = requests.take(queue_, out);
    return {out.begin(), out.begin() + static_cast<ptrdiff_t>(n)};
  }

  std::vector<std::unique_ptr<io::ByteSource>> sources_;
  residency::FillQueue queue_;
};

using Taken = std::vector<uint32_t>;

TEST_F(JoinedRequestsTest, NeighboursGoTogetherInTheOrderOfTheFile) {
  JoinedRequests requests(sources_, 100);
  push(500, 10);
  push(200, 10);
  push(520, 10);
  push(510, 10, 1, 1);  // another file
  push(510, 10);
  push(530, 71);  // does not fit
  EXPECT_EQ(take(requests), Taken({0, 4, 2}));
  EXPECT_EQ(take(requests), Taken({1}));
  EXPECT_EQ(take(requests), Taken({3}));
  EXPECT_EQ(take(requests), Taken({5}));
  EXPECT_EQ(take(requests), Taken());
}

TEST_F(JoinedRequestsTest, RowsGoFirst) {
  JoinedRequests requests(sources_, 100);
  push(500, 10);
  push(40, 10, residency::kFillRow);
  push(20, 10, residency::kFillRow);
  push(50, 10);
  EXPECT_EQ(take(requests), Taken({1, 3}));
  EXPECT_EQ(take(requests), Taken({2}));
  EXPECT_EQ(take(requests), Taken({0}));
}

TEST_F(JoinedRequestsTest, WhatHasNoPlaceGoesAlone) {
  JoinedRequests requests(sources_, 100);
  push(1'000'000, 10);
  push(1'000'010, 10);
  push(999'990, 10);
  EXPECT_EQ(take(requests), Taken({0}));
  EXPECT_EQ(take(requests), Taken({1}));
  EXPECT_EQ(take(requests), Taken({2}));
}

TEST_F(JoinedRequestsTest, NothingIsJoinedWithoutRoom) {
  JoinedRequests requests(sources_, 0);
  push(0, 10);
  push(10, 10);
  EXPECT_EQ(take(requests), Taken({0}));
  EXPECT_EQ(take(requests), Taken({1}));
}

TEST_F(JoinedRequestsTest, AtMostEight) {
  JoinedRequests requests(sources_, 1000);
  for (uint64_t i = 0; i < 10; ++i) push(10 * i, 10);
  EXPECT_EQ(take(requests).size(), JoinedRequests::kMax);
  EXPECT_EQ(take(requests), Taken({8, 9}));
}

// Random pushes and completions while the numbers of requests overflow, taken by several threads.
TEST_F(JoinedRequestsTest, EachIsTakenOnceByAnyThread) {
  JoinedRequests requests(sources_, 64);
  const uint32_t start = UINT32_MAX - 100;
  queue_.pushed = start;
  std::mt19937 random(9);
  std::mutex mutex;
  std::set<uint32_t> seen;
  uint32_t freed = start;
  for (int round = 0; round < 60; ++round) {
    while (queue_.pushed - freed < residency::kFillCapacity && random() % 8 != 0) {
      const uint32_t unit = random() % 9 == 0 ? residency::kFillRow : 1;
      push(8 * (random() % 40), 8, unit, random() % 2);
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (Taken taken = take(requests); !taken.empty(); taken = take(requests)) {
          uint64_t end = 0;
          for (const uint32_t n : taken) {
            const residency::FillRequest& r = queue_.ring[n % residency::kFillCapacity];
            EXPECT_EQ(r.state, residency::kFillTaken);
            EXPECT_TRUE(n == taken[0] || r.offset == end);
            end = r.offset + r.length;
            const std::lock_guard<std::mutex> lock(mutex);
            EXPECT_TRUE(seen.insert(n).second) << n;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(seen.size(), queue_.pushed - start);
    for (; freed != queue_.pushed; ++freed) {
      queue_.ring[freed % residency::kFillCapacity].state = residency::kFillFree;
    }
  }
  EXPECT_GT(seen.size(), 200u);
}

}  // namespace
}  // namespace sluice::native
