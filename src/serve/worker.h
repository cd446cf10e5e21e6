// The one thread that touches the engine. It takes requests from a bounded queue, in order, and
// computes one after the other. Each goes to the session that holds the longest beginning of its
// prompt, so that a conversation finds its keys and values again; the answer does not depend on it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "native/model_file.h"
#include "serve/job.h"
#include "serve/metrics.h"

namespace sluice::serve {

class Worker {
 public:
  enum class Admission : uint8_t { kAdmitted, kFull, kClosed };

  // `model`, opened for `n_sessions`, and `metrics` outlive this; from start() on the engine is the
  // worker's alone.
  Worker(native::Model& model, Metrics& metrics, int32_t n_sessions, size_t max_queued);
  ~Worker();
  // Errors: Session::create's.
  [[nodiscard]] Status start();

  // Takes a request, whose answer comes in its channel.
  [[nodiscard]] Admission submit(const std::shared_ptr<Job>& job);
  // Has the engine look whether its reader is still there, also where it waits for weights.
  void look() { model_.wake(); }
  // Seconds until a request that comes now may find room, as far as the past tells.
  [[nodiscard]] int retry_after() const;
  [[nodiscard]] size_t queued() const;
  [[nodiscard]] size_t running() const { return running_; }
  // The error that ended all work (a source that cannot be read any more); ok: none did.
  [[nodiscard]] Status failure() const;

  // Takes no more requests. What has been taken is answered.
  void close();
  // Gives up what is queued and under way, and ends the thread.
  void stop();

 private:
  void loop();
  void compute(Job& job);
  [[nodiscard]] Status generate(Job& job);
  [[nodiscard]] Status answer(Job& job, const std::vector<Token>& prompt, int32_t index);
  [[nodiscard]] Status embed(Job& job);
  [[nodiscard]] bool abandoned(const Job& job) const;
  session::Session& choose_session(const std::vector<Token>& prompt);
  session::Session& oldest_session();

  native::Model& model_;
  Metrics& metrics_;
  const size_t n_sessions_, max_queued_;
  struct Slot {
    std::unique_ptr<session::Session> session;
    uint64_t used = 0;  // number of the request that used it last
  };
  std::vector<Slot> slots_;
  uint64_t n_used_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool closed_ = false;
  Status failure_;
  double mean_ms_ = 0;  // of a request
  std::atomic<bool> stop_{false};
  std::atomic<size_t> running_{0};
  std::thread thread_;
};

}  // namespace sluice::serve
