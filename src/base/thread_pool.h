// A persistent pool for short parallel regions (about five per layer). Workers spin briefly between
// regions and sleep when there is no work. The caller is thread 0. Tasks are claimed from one
// atomic counter, so results must not depend on which thread runs a task. n_threads 1 starts no
// thread.
#pragma once

#include <cstdint>
#include <memory>

namespace sluice {

inline constexpr int kMaxThreads = 64;

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int n_threads() const;

  // Calls fn(context, task, thread) once for each task in [0, n_tasks); returns when all are done.
  using Task = void (*)(void* context, int64_t task, int thread);
  void run(int64_t n_tasks, Task fn, void* context);

  // The same for a callable: body(task, thread).
  template <typename Body>
  void parallel_for(int64_t n_tasks, Body&& body) {
    run(
        n_tasks, [](void* c, int64_t task, int thread) { (*static_cast<Body*>(c))(task, thread); },
        &body);
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The default number of threads: physical cores, at least 1 and at most 8.
[[nodiscard]] int default_thread_count();

}  // namespace sluice
