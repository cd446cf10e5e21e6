// Threads that report a failed start without an exception, and a futex to wait on.
// std::atomic::wait is not used: libc++ under Emscripten 3.1 polls. libstdc++ on Windows shares one
// lock between all waits and can lose a wake-up between the check and the lock.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::platform {

class Thread {
 public:
  using Main = void* (*)(void* context);
  // False: the system refused another thread.
  [[nodiscard]] bool start(size_t stack_bytes, Main main, void* context);
  // Call once, after start() has returned true.
  void join();

 private:
  pthread_t handle_;
};

// Gives the processor to another thread.
void yield();

// Sleeps while the word equals `seen`; may return early.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen);
void futex_wake_all(std::atomic<uint32_t>& word);

// The number of physical cores that this process may run on, or of hardware threads if `logical`.
// At least 1.
[[nodiscard]] int usable_cpus(bool logical);

// Processor time of the calling thread, in milliseconds.
[[nodiscard]] double thread_cpu_ms();

}  // namespace sluice::platform
