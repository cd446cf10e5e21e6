// POSIX threads on every system; on Windows, winpthreads comes with the compiler.
#include "platform/threads.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <limits>

#if defined(__EMSCRIPTEN__)
#include <emscripten/threading.h>
#elif defined(_WIN32)
#include <windows.h>
#endif

namespace sluice::platform {

bool Thread::start(size_t stack_bytes, Main main, void* context) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, stack_bytes);
  const bool started = pthread_create(&handle_, &attributes, main, context) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

void Thread::join() {
  pthread_join(handle_, nullptr);
}

void yield() {
  sched_yield();
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
#if defined(__EMSCRIPTEN__)
  emscripten_futex_wait(&word, seen, std::numeric_limits<double>::infinity());
#elif defined(_WIN32)
  WaitOnAddress(&word, &seen, sizeof seen, INFINITE);
#else
  word.wait(seen, std::memory_order_seq_cst);
#endif
}

void futex_wake_all(std::atomic<uint32_t>& word) {
#if defined(__EMSCRIPTEN__)
  emscripten_futex_wake(&word, std::numeric_limits<int>::max());
#elif defined(_WIN32)
  WakeByAddressAll(&word);
#else
  word.notify_all();
#endif
}

double thread_cpu_ms() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

}  // namespace sluice::platform
