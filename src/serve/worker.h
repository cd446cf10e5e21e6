// The only thread that uses the engine. It takes requests from a bounded queue in order and runs as
// many in parallel as the engine was planned for, with continuous batching (generate/scheduler.h).
// Each generation continues the conversation with the longest common prefix (slots.h), so that its
// KV cache is reused. The output depends neither on that nor on the other requests in the batch.
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
#include "media/decode.h"
#include "native/picture_file.h"
#include "serve/job.h"
#include "serve/metrics.h"
#include "serve/slots.h"

namespace sluice::serve {

class Worker {
 public:
  enum class Admission : uint8_t { kAdmitted, kFull, kClosed };

  // Both must outlive this. `model` was opened with EngineOptions::parallel. From start() on, only
  // the worker may use the engine.
  Worker(native::Model& model, Metrics& metrics, size_t max_queued);
  ~Worker();
  // --- before start()
  void remember(PromptCacheHooks cache_hooks) { slots_.remember(std::move(cache_hooks)); }
  // The model takes pictures, decoded as `decoding` says. `pictures` must outlive this.
  void see(native::PictureFile* pictures, const media::DecodeOptions& decoding) {
    pictures_ = pictures;
    decoding_ = decoding;
  }
  // Errors: Slots::swap_to's.
  [[nodiscard]] Status swap_to(const std::string& directory, size_t conversations) {
    return slots_.swap_to(directory, conversations);
  }
  // Errors: Slots::start's.
  [[nodiscard]] Status start();

  // Queues a request. Its results arrive in its channel.
  [[nodiscard]] Admission submit(const std::shared_ptr<Job>& job);
  // Makes the engine's thread check for disconnected readers, even while it waits for weights.
  void look() { model_.wake(); }
  // Estimated seconds until the queue has space for another request.
  [[nodiscard]] int retry_after() const;
  [[nodiscard]] size_t queued() const;
  [[nodiscard]] size_t running() const { return running_; }
  // The error that ended all work, such as an unreadable model file; ok if there was none.
  [[nodiscard]] Status failure() const;

  // Accepts no more requests; those already queued are completed.
  void close();
  // Aborts queued and running requests, and ends the thread.
  void stop();

 private:
  using Slot = Slots::Slot;
  // A running request.
  struct Task {
    std::shared_ptr<Job> job;
    double start = 0;                // monotonic_ms
    int32_t begun = 0, running = 0;  // numbers of generations
    bool ended = false;              // its last event was emitted
    bool unshared = false;           // copies of its prompt do not hold its pictures
    Status failure;
    std::deque<Event> unread;  // events that do not fit into the channel
    double full_since = 0;
    Slot* slot = nullptr;  // for embeddings
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
  [[nodiscard]] Status read_pictures(Job& job);
  [[nodiscard]] bool must_wait(const Job& job) const;
  [[nodiscard]] Status see_prompt(Job& job, Slot& slot, generate::Options* options);
  void follow_pictures();
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
  native::PictureFile* pictures_ = nullptr;  // null: the model takes none
  media::DecodeOptions decoding_;
  // The task whose pictures are read, until all its generations have begun, and the generation that
  // computes them, until its prompt is computed. That one runs alone, because the memory of the
  // model is lent to the encoder.
  Task* seen_ = nullptr;
  Answering* seeing_ = nullptr;
  Task* embedding_ = nullptr;  // the task whose embedding pass is running
  bool embedded_last_ = false;
  const Job* expected_ = nullptr;  // the queued job whose conversation was read ahead

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool closed_ = false;
  Status failure_;
  double mean_ms_ = 0;  // running average of a request's time
  std::atomic<bool> stop_{false};
  std::atomic<size_t> running_{0};
  std::thread thread_;
};

}  // namespace sluice::serve
