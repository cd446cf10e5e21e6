// One thread per connection, up to a maximum. The accepting thread refuses further connections
// itself. Used only by http_server.cpp, which is compiled with exceptions for cpp-httplib.
#pragma once

#include <httplib.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace sluice::serve {

class Threads final : public httplib::TaskQueue {
 public:
  Threads(size_t most, std::atomic<size_t>& running) : max_(most), running_(running) {}
  // Later versions of the library want to know whether the work was taken.
  using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));
  Taken enqueue(std::function<void()> work) override {
    if (running_ >= max_ || !begin(work)) {
      refusing = true;
      work();
      refusing = false;
    }
    return static_cast<Taken>(true);
  }
  void shutdown() override {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [this] { return running_ == 0; });
  }

  static inline thread_local bool refusing = false;  // this connection exceeds the maximum

 private:
  bool begin(const std::function<void()>& work) {
    ++running_;
    try {
      std::thread([this, work] {
        work();
        const std::lock_guard<std::mutex> lock(mutex_);
        --running_;
        ended_.notify_all();
      }).detach();
      return true;
    } catch (const std::system_error&) {
      --running_;
      return false;
    }
  }
  const size_t max_;
  std::atomic<size_t>& running_;
  std::mutex mutex_;
  std::condition_variable ended_;
};

}  // namespace sluice::serve
