// What the thread pool guarantees: every task runs exactly once, on a thread in range; regions see
// each other's writes; sleeping workers wake; pools are created and destroyed without losing a
// thread. Also run under the thread sanitizer. Nothing here measures time.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "../sanitized.h"
#include "base/aligned.h"
#include "base/clock.h"

#if !defined(_WIN32)
#include <sys/resource.h>
#endif

namespace sluice {
namespace {

TEST(ThreadPool, RunsEveryTaskExactlyOnce) {
  for (const int n_threads : {1, 2, 3, 8}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(pool.n_threads(), n_threads);
    for (const int64_t n_tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> counts(static_cast<size_t>(n_tasks));
      std::atomic<int> out_of_range{0};
      pool.parallel_for(n_tasks, [&](int64_t task, int thread) {
        if (thread < 0 || thread >= n_threads || task < 0 || task >= n_tasks) ++out_of_range;
        counts[static_cast<size_t>(task)].fetch_add(1);
      });
      EXPECT_EQ(out_of_range.load(), 0);
      for (const auto& count : counts) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, ClampsTheThreadCount) {
  EXPECT_EQ(ThreadPool(0).n_threads(), 1);
  EXPECT_EQ(ThreadPool(-5).n_threads(), 1);
  const int many = ThreadPool(1000000).n_threads();
  EXPECT_GE(many, 1);
  EXPECT_LE(many, 64);
}

TEST(ThreadPool, OneThreadRunsInOrderOnTheCaller) {
  ThreadPool pool(1);
  std::vector<int64_t> order;
  const auto caller = std::this_thread::get_id();
  pool.parallel_for(10, [&](int64_t task, int thread) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(thread, 0);
    order.push_back(task);
  });
  std::vector<int64_t> expected(10);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

// Plain (not atomic) memory, written in one region and read in the next by any thread. A missing
// barrier gives a wrong sum, and a race under the thread sanitizer.
TEST(ThreadPool, RegionsAreBarriers) {
  ThreadPool pool(4);
  constexpr int64_t kN = 37;
  std::vector<int64_t> a(kN, 1), b(kN, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(kN, [&](int64_t i, int) {
      b[static_cast<size_t>(i)] = a[static_cast<size_t>((i * 5 + 3) % kN)];
    });
    pool.parallel_for(kN, [&](int64_t i, int) {
      a[static_cast<size_t>(i)] = b[static_cast<size_t>((i * 7 + 1) % kN)] + 1;
    });
  }
  for (const int64_t value : a) EXPECT_EQ(value, 2001);
}

// Two tasks that wait for each other finish only if two threads run at once. If a sleeping worker
// is not woken this hangs, and the test runner kills it.
TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

// The caller runs out of tasks while a worker is still busy: it must sleep and be woken.
TEST(ThreadPool, CallerSleepsUntilTheLastTask) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::atomic<bool> finished{false};
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](int64_t, int thread) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
      if (thread == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      finished.store(true);
    });
    EXPECT_TRUE(finished.load());
  }
}

TEST(ThreadPool, IdleAndBusyPoolsShutDown) {
  for (int i = 0; i < 100; ++i) {
    ThreadPool idle(3);
    ThreadPool busy(3);
    std::atomic<int> n{0};
    busy.parallel_for(5, [&](int64_t, int) { n.fetch_add(1); });
    EXPECT_EQ(n.load(), 5);
  }
}

TEST(ThreadPool, SurvivesFailedThreadCreation) {
#if defined(_WIN32)
  GTEST_SKIP() << "the address space of a process cannot be limited";
#elif defined(SLUICE_SANITIZED)
  GTEST_SKIP() << "a sanitizer's own mappings do not fit under the limit";
#else
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit none = before;
  none.rlim_cur = 1 << 20;  // less than in use, so no new stack can be mapped
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  std::atomic<int> n{0};
  int n_threads = 0;
  {
    ThreadPool pool(64);
    n_threads = pool.n_threads();
    pool.parallel_for(100, [&](int64_t, int) { n.fetch_add(1); });
  }
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_LT(n_threads, 64);  // a few may reuse cached stacks
  EXPECT_EQ(n.load(), 100);
#endif
}

TEST(ThreadPool, DefaultCountIsSmall) {
  EXPECT_GE(default_thread_count(), 1);
  EXPECT_LE(default_thread_count(), 8);
  const unsigned logical = std::thread::hardware_concurrency();
  EXPECT_LE(default_thread_count(), std::max(1, static_cast<int>(logical)));
}

TEST(AlignedBuffer, AlignsMovesAndFails) {
  AlignedBuffer a;
  EXPECT_EQ(a.data(), nullptr);
  ASSERT_TRUE(a.allocate(100).ok());
  EXPECT_EQ(a.size(), 100U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % kAlignment, 0U);
  std::byte* const data = a.data();
  AlignedBuffer b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: moved-from is empty by contract
  EXPECT_EQ(b.allocate(UINT64_MAX).code(), Code::kOutOfMemory);
  EXPECT_EQ(b.data(), nullptr);
  EXPECT_EQ(b.size(), 0U);
  EXPECT_TRUE(b.allocate(0).ok());
}

TEST(Clock, IsMonotonic) {
  double last = monotonic_ms();
  for (int i = 0; i < 1000; ++i) {
    const double now = monotonic_ms();
    ASSERT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace sluice
