// The one thread that touches the engine. It takes requests from a bounded queue, in order, and
// computes the answers of as many at once as the engine was planned for: their passes are one
// (generate/scheduler.h). Each answer goes to the conversation that holds the longest beginning of
// its prompt (slots.h), so that it finds its keys and values again; the answer depends neither on
// that nor on what is computed beside it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "generate/nextn_draft.h"
#include "native/model_file.h"
#include "serve/job.h"
#include "serve/metrics.h"
#include "serve/slots.h"

namespace sluice::serve {

class Worker {
 public:
  enum class Admission : uint8_t { kAdmitted, kFull, kClosed };

  // `model`, opened for as many answers at once as EngineOptions::parallel says, and `metrics`
  // outlive this; from start() on the engine is the worker's alone.
  Worker(native::Model& model, Metrics& metrics, size_t max_queued);
  ~Worker();
  // --- before start()
  void remember(PromptCacheHooks cache_hooks) { slots_.remember(std::move(cache_hooks)); }
  // Errors: Slots::swap_to's.
  [[nodiscard]] Status swap_to(const std::string& directory, size_t conversations) {
    return slots_.swap_to(directory, conversations);
  }
  // Errors: Slots::start's.
  [[nodiscard]] Status start();

  // Takes a request, whose answer comes in its channel.
  [[nodiscard]] Admission submit(const std::shared_ptr<Job>& job);
  // Has the engine look whether its readers are still there, also where it waits for weights.
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
  using Slot = Slots::Slot;
  // A request that is being answered.
  struct Task {
    std::shared_ptr<Job> job;
    double start = 0;                // monotonic_ms
    int32_t begun = 0, running = 0;  // answers
    bool ended = false;              // its last event is said
    Status failure;
    std::deque<Event> unread;  // that the channel has no room for
    double full_since = 0;
    Slot* slot = nullptr;  // of embeddings
    std::unique_ptr<embed::Embedder> embedder;
  };
  struct Answering {
    Task* task = nullptr;
    int32_t index = 0;
    Slot* slot = nullptr;
    std::unique_ptr<generate::NextnDraft> nextn;
    std::unique_ptr<generate::Generation> generation;
  };

  void loop();
  [[nodiscard]] session::Step step(int32_t max_ops);
  [[nodiscard]] session::Step compute(int32_t max_ops);
  void take_jobs();
  [[nodiscard]] std::shared_ptr<Job> next_job();
  void begin(Task& task);
  [[nodiscard]] bool begin_answer(Task& task);
  void take_pieces(Answering& answering);
  void end_answer(Answering& answering);
  void begin_embedding(Task& task);
  [[nodiscard]] bool begin_embedding_pass();
  [[nodiscard]] session::Step embed(int32_t max_ops);
  void end_embedding(Task& task);
  void settle(Task& task);
  void tell(Task& task, Event event);
  void show(Task& task);
  void give_up(Task& task, Status why);
  void end_all(const Status& why);
  [[nodiscard]] bool abandoned(const Job& job) const;
  [[nodiscard]] Status reason() const;
  void expect_next();

  native::Model& model_;
  Metrics& metrics_;
  const size_t parallel_, max_queued_;
  generate::Scheduler scheduler_;
  Slots slots_;
  std::list<Task> tasks_;
  std::list<Answering> answers_;
  Task* embedding_ = nullptr;  // whose pass is computed
  bool embedded_last_ = false;
  const Job* expected_ = nullptr;  // in the queue; its conversation has been read ahead

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
