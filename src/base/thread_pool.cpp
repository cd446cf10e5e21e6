// The persistent pool. A region is two words: `remaining` counts unclaimed tasks, `pending` counts
// unfinished ones. A claim is one compare-and-swap on `remaining`. It keeps the region open until
// the claimer subtracts from `pending`. A worker that wakes late finds nothing to claim, or joins
// the current region; no worker has to check in. A worker that is descheduled, or was never
// started, therefore delays nothing.
#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "platform/threads.h"

namespace sluice {
namespace {

using platform::futex_wait;
using platform::futex_wake_all;

constexpr int64_t kMaxRegionTasks = 1 << 30;
constexpr int kMaxDefaultThreads = 8;

// Long enough to bridge the serial code between two regions of a layer, short enough that an idle
// pool costs nothing: tens of microseconds, then a few yields, then sleep.
#if defined(__EMSCRIPTEN__)
constexpr int kSpins = 40000;  // no pause instruction: an iteration takes about a nanosecond
constexpr size_t kStackBytes = 64 * 1024;  // in the budget; the largest frame takes 9 kB
#else
constexpr int kSpins = 2000;  // a pause is 20 to 60 ns
constexpr size_t kStackBytes = 2 * 1024 * 1024;
#endif
constexpr int kSpinsOversubscribed = 20;
constexpr int kYields = 8;

void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins, then yields, until ready(). Returns false when it gave up.
template <typename Ready>
bool spin_until(int spins, Ready&& ready) {
  for (int i = 0; i < spins; ++i) {
    if (ready()) return true;
    cpu_relax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (ready()) return true;
    platform::yield();
  }
  return ready();
}

}  // namespace

struct ThreadPool::Impl {
  struct Worker {
    Impl* pool;
    int index;
    platform::Thread thread;
  };

  // All threads claim from `remaining`, so it has a cache line of its own. `pending` is written
  // once per thread and region.
  alignas(64) std::atomic<uint32_t> remaining{0};
  alignas(64) std::atomic<uint32_t> pending{0};
  std::atomic<uint32_t> caller_sleeps{0};
  alignas(64) std::atomic<uint32_t> epoch{0};  // counts regions; sleeping workers wait on it
  std::atomic<uint32_t> sleepers{0};
  std::atomic<bool> stop{false};
  // The current region. Written while it is closed, read only after a successful claim.
  alignas(64) Task fn = nullptr;
  void* context = nullptr;
  int64_t first_task = 0;
  uint32_t n_tasks = 0;

  int spins = kSpins;
  int n_workers = 0;
  Worker workers[kMaxThreads];

  // Claims and runs tasks until none is left; returns how many it ran.
  uint32_t work(int thread) {
    uint32_t n_done = 0;
    uint32_t left = remaining.load(std::memory_order_relaxed);
    while (left != 0) {
      if (!remaining.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel,
                                           std::memory_order_relaxed)) {
        continue;
      }
      fn(context, first_task + (n_tasks - left), thread);
      ++n_done;
      left = remaining.load(std::memory_order_relaxed);
    }
    return n_done;
  }

  void worker_loop(int thread) {
    for (;;) {
      const uint32_t seen = epoch.load(std::memory_order_seq_cst);
      if (const uint32_t n_done = work(thread); n_done != 0) {
        finish(n_done);
        continue;
      }
      if (stop.load(std::memory_order_acquire)) return;
      const bool more = spin_until(spins, [this] {
        return remaining.load(std::memory_order_relaxed) != 0 ||
               stop.load(std::memory_order_relaxed);
      });
      if (more) continue;
      // Announce the sleep before the last check, which is inside the wait. run() opens the region
      // before it looks for sleepers, so one of the two sees the other.
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      futex_wait(epoch, seen);
      sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  void finish(uint32_t n_done) {
    if (pending.fetch_sub(n_done, std::memory_order_seq_cst) == n_done &&
        caller_sleeps.load(std::memory_order_seq_cst) != 0) {
      futex_wake_all(pending);
    }
  }

  void wake_workers() {
    epoch.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(epoch);
  }

  void run_region(int64_t first, uint32_t n, Task task, void* task_context) {
    fn = task;
    context = task_context;
    first_task = first;
    n_tasks = n;
    pending.store(n, std::memory_order_relaxed);
    remaining.store(n, std::memory_order_release);
    wake_workers();
    if (const uint32_t n_done = work(0); n_done != 0) finish(n_done);
    if (spin_until(spins, [this] { return pending.load(std::memory_order_acquire) == 0; })) return;
    caller_sleeps.store(1, std::memory_order_seq_cst);
    for (uint32_t left; (left = pending.load(std::memory_order_seq_cst)) != 0;) {
      futex_wait(pending, left);
    }
    caller_sleeps.store(0, std::memory_order_relaxed);
  }

  static void* thread_main(void* arg) {
    auto* worker = static_cast<Worker*>(arg);
    worker->pool->worker_loop(worker->index);
    return nullptr;
  }

  void start(int n) {
    while (n_workers < n) {
      Worker& worker = workers[n_workers];
      worker.pool = this;
      worker.index = n_workers + 1;
      // The system refused a thread: continue with those that have started.
      if (!worker.thread.start(kStackBytes, thread_main, &worker)) break;
      ++n_workers;
    }
  }

  void join() {
    stop.store(true, std::memory_order_release);
    wake_workers();
    for (int i = 0; i < n_workers; ++i) workers[i].thread.join();
  }
};

ThreadPool::ThreadPool(int n_threads) {
  n_threads = std::clamp(n_threads, 1, kMaxThreads);
  if (n_threads == 1) return;
  impl_.reset(new (std::nothrow) Impl);
  if (!impl_) return;
  if (n_threads > platform::usable_cpus(true)) impl_->spins = kSpinsOversubscribed;
  impl_->start(n_threads - 1);
}

ThreadPool::~ThreadPool() {
  if (impl_) impl_->join();
}

int ThreadPool::n_threads() const {
  return impl_ ? impl_->n_workers + 1 : 1;
}

void ThreadPool::run(int64_t n_tasks, Task fn, void* context) {
  if (!impl_ || impl_->n_workers == 0 || n_tasks <= 1) {
    for (int64_t task = 0; task < n_tasks; ++task) fn(context, task, 0);
    return;
  }
  for (int64_t first = 0; first < n_tasks; first += kMaxRegionTasks) {
    const int64_t n = std::min(n_tasks - first, kMaxRegionTasks);
    impl_->run_region(first, static_cast<uint32_t>(n), fn, context);
  }
}

int default_thread_count() {
  return std::clamp(platform::usable_cpus(false), 1, kMaxDefaultThreads);
}

}  // namespace sluice
