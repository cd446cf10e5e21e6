// Threads whose start can fail without an exception, and what they wait on. Sleeping is a futex,
// because libc++ under Emscripten 3.1 implements atomic waits by polling, and libstdc++ on Windows
// by one lock for all of them, and loses a wake-up between looking at the word and taking the lock.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::platform {

class Thread {
 public:
  using Main = void* (*)(void* context);
  // False: the system has no more threads to give.
  [[nodiscard]] bool start(size_t stack_bytes, Main main, void* context);
  // Once, after a start() that succeeded.
  void join();

 private:
  pthread_t handle_;
};

// Lets another thread have the processor.
void yield();

// Sleeps while the word is `seen`; may return early.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen);
void futex_wake_all(std::atomic<uint32_t>& word);

// Processors that this process may run on: distinct physical cores or, with `logical`, hardware
// threads. At least 1.
[[nodiscard]] int usable_cpus(bool logical);

// Processor time of the calling thread, in milliseconds.
[[nodiscard]] double thread_cpu_ms();

}  // namespace sluice::platform
