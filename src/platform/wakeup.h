// A flag that one thread raises and another waits for, together with input or sockets. On POSIX
// systems it is a pipe, whose read end poll() accepts.
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
