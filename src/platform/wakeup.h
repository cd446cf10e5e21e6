// A flag that one thread raises and another waits for, together with input or sockets: on POSIX
// systems a pipe, on Windows a socket.
#pragma once

#include <atomic>

namespace sluice::platform {

class Wakeup {
 public:
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  // False if the system refused the descriptors.
  [[nodiscard]] bool usable() const { return usable_; }
  void raise();
  void lower();
  [[nodiscard]] bool raised() const { return raised_.load(); }
  // Readable while raised, for poll() or wait_for() of socket.h. -1 if unusable.
  [[nodiscard]] int descriptor() const {
#if defined(_WIN32)
    return descriptor_;
#else
    return ends_[0];
#endif
  }

 private:
  std::atomic<bool> raised_{false};
  bool usable_ = true;
#if defined(_WIN32)
  int descriptor_;
#else
  int ends_[2] = {-1, -1};
#endif
};

}  // namespace sluice::platform
