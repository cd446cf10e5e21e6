// A flag that one thread raises and another one waits for together with input or sockets: a pipe
// with a byte in it, on POSIX systems, whose end poll() takes.
#pragma once

#include <atomic>

namespace sluice::platform {

class Wakeup {
 public:
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  // False where the platform gave no descriptors.
  [[nodiscard]] bool usable() const { return usable_; }
  void raise();
  void lower();
  [[nodiscard]] bool raised() const { return raised_.load(); }
#if !defined(_WIN32)
  // Readable while raised.
  [[nodiscard]] int descriptor() const {
    return ends_[0];
  }
#endif

 private:
  std::atomic<bool> raised_{false};
  bool usable_ = true;
#if !defined(_WIN32)
  int ends_[2] = {-1, -1};
#endif
};

}  // namespace sluice::platform
