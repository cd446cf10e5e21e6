#include "serve/worker.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"

namespace sluice::serve {
namespace {

using generate::Finish;
using session::Step;

constexpr double kReaderMs = 10'000;  // that the engine waits for one that does not read

Status late() {
  return error(Code::kAborted, "the request took longer than this server allows");
}

size_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first - a.begin());
}

}  // namespace

Worker::Worker(native::Model& model, Metrics& metrics, int32_t n_sessions, size_t max_queued)
    : model_(model),
      metrics_(metrics),
      n_sessions_(static_cast<size_t>(n_sessions)),
      max_queued_(max_queued) {}

Worker::~Worker() {
  stop();
}

Status Worker::start() {
  for (size_t i = 0; i < n_sessions_; ++i) {
    auto session = session::Session::create(model_.engine());
    if (!session.ok()) return session.status();
    slots_.push_back({std::move(*session)});
  }
  thread_ = std::thread([this] { loop(); });
  return {};
}

Worker::Admission Worker::submit(const std::shared_ptr<Job>& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_ || !failure_.ok()) return Admission::kClosed;
  // Those whose readers have gone keep nobody out.
  std::erase_if(queue_, [](const auto& queued) { return queued->channel.left(); });
  if (queue_.size() >= max_queued_) return Admission::kFull;
  queue_.push_back(job);
  wake_.notify_one();
  return Admission::kAdmitted;
}

int Worker::retry_after() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const double seconds = std::ceil(mean_ms_ * static_cast<double>(queue_.size()) / 2e3);
  return static_cast<int>(std::clamp(seconds, 1.0, 60.0));
}

size_t Worker::queued() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queue_.size();
}

Status Worker::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void Worker::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
}

void Worker::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    stop_ = true;
  }
  wake_.notify_one();
  if (!thread_.joinable()) return;
  model_.interrupt();  // where it waits for weights
  thread_.join();
}

void Worker::loop() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      running_ = 1;
    }
    const double start = monotonic_ms();
    compute(*job);
    const std::lock_guard<std::mutex> lock(mutex_);
    const double ms = monotonic_ms() - start;
    mean_ms_ = mean_ms_ == 0 ? ms : 0.8 * mean_ms_ + 0.2 * ms;
    running_ = 0;
  }
}

bool Worker::abandoned(const Job& job) const {
  return stop_ || job.channel.left() || monotonic_ms() > job.deadline;
}

void Worker::compute(Job& job) {
  job.begun = monotonic_ms();
  Status status = job.embedding ? embed(job) : generate(job);
  if (status.ok() && abandoned(job)) {
    status = stop_ ? error(Code::kAborted, "the server is shutting down") : late();
  }
  Event last;
  last.kind = status.ok() ? Event::Kind::kDone : Event::Kind::kFailed;
  last.failure = std::move(status);
  job.channel.push(std::move(last), monotonic_ms() + kReaderMs);
}

Status Worker::generate(Job& job) {
  for (int32_t i = 0; i < static_cast<int32_t>(job.prompts.size()) * job.n; ++i) {
    if (abandoned(job)) return {};
    SLUICE_RETURN_IF_ERROR(answer(job, job.prompts[static_cast<size_t>(i / job.n)], i));
    ++job.options.sampling.seed;
  }
  return {};
}

Status Worker::answer(Job& job, const std::vector<Token>& prompt, int32_t index) {
  auto generation = generate::Generation::begin(choose_session(prompt), prompt, job.options);
  if (!generation.ok()) return generation.status();
  generate::Generation& g = **generation;
  const auto tell = [&](Event event) {
    event.index = index;
    return job.channel.push(std::move(event), monotonic_ms() + kReaderMs);
  };
  if (index == 0) static_cast<void>(tell({.kind = Event::Kind::kStarted}));
  const Status driven = model_.drive([&](int32_t max_ops) {
    if (abandoned(job)) {
      g.cancel();
      return Step::kDone;
    }
    const Step step = g.step(max_ops);
    for (generate::Piece& piece : g.take_pieces()) {
      if (tell({.kind = Event::Kind::kPiece, .piece = std::move(piece)})) continue;
      job.channel.leave();
      g.cancel();
      return Step::kDone;
    }
    return step;
  });
  if (!driven.ok()) {
    g.cancel();
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = driven;
    return driven;
  }
  metrics_.count_answer(g.counts(), g.finish(), job.begun - job.arrived);
  if (g.finish() == Finish::kFailed) return g.failure();
  static_cast<void>(
      tell({.kind = Event::Kind::kAnswered, .finish = g.finish(), .counts = g.counts()}));
  return {};
}

Status Worker::embed(Job& job) {
  session::Session& session = oldest_session();
  session.clear();
  embed::Embedder embedder(session);
  SLUICE_RETURN_IF_ERROR(embedder.begin(job.tokens, job.ends, job.embed_options));
  job.width = embedder.width();
  job.vectors.reserve(job.ends.size() * static_cast<size_t>(job.width));
  Status status;
  while (status.ok() && !abandoned(job)) {
    const Result<bool> more = embedder.next();
    if (!more.ok()) status = more.status();
    if (!more.ok() || !*more) break;
    Step last = Step::kDone;
    const Status driven = model_.drive([&](int32_t max_ops) {
      return abandoned(job) ? Step::kDone : (last = embedder.step(max_ops));
    });
    if (!driven.ok()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      failure_ = status = driven;
    } else if (last == Step::kFailed) {
      status = embedder.failure();
    }
    for (int32_t i = 0; i < embedder.n_results() && status.ok() && !abandoned(job); ++i) {
      const std::span<const float> row = embedder.result(i);
      job.vectors.insert(job.vectors.end(), row.begin(), row.end());
    }
  }
  session.cancel();
  session.clear();  // nothing can be generated after texts alone
  if (status.ok() && !abandoned(job)) metrics_.count_embedding(job.ends.size(), job.tokens.size());
  return status;
}

session::Session& Worker::choose_session(const std::vector<Token>& prompt) {
  const auto rank = [&](const Slot& slot) {
    return std::pair(common_prefix(slot.session->tokens(), prompt), ~slot.used);
  };
  Slot& best = *std::max_element(slots_.begin(), slots_.end(),
                                 [&](const Slot& a, const Slot& b) { return rank(a) < rank(b); });
  best.used = ++n_used_;
  return *best.session;
}

session::Session& Worker::oldest_session() {
  Slot& oldest = *std::min_element(slots_.begin(), slots_.end(),
                                   [](const Slot& a, const Slot& b) { return a.used < b.used; });
  oldest.used = ++n_used_;
  return *oldest.session;
}

}  // namespace sluice::serve
