#include "serve/worker.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"

namespace sluice::serve {
namespace {

using generate::Finish;
using session::Step;

constexpr double kReaderMs = 10'000;  // timeout for a reader that does not read
constexpr auto kLookAgain = std::chrono::milliseconds(5);  // while all generations wait for readers

int32_t answers_of(const Job& job) {
  return job.embedding ? 0 : static_cast<int32_t>(job.prompts.size()) * job.n;
}

}  // namespace

Worker::Worker(native::Model& model, Metrics& metrics, size_t max_queued)
    : model_(model),
      metrics_(metrics),
      parallel_(static_cast<size_t>(model.engine().plan().sessions.parallel)),
      max_queued_(max_queued),
      scheduler_(model.engine().context()),
      slots_(model.engine().context(), scheduler_, metrics) {}

Worker::~Worker() {
  stop();
}

Status Worker::start() {
  SLUICE_RETURN_IF_ERROR(slots_.start());
  thread_ = std::thread([this] { loop(); });
  return {};
}

Worker::Admission Worker::submit(const std::shared_ptr<Job>& job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_ || !failure_.ok()) return Admission::kClosed;
  // Requests whose readers have disconnected do not count.
  std::erase_if(queue_, [](const auto& queued) { return queued->channel.left(); });
  if (queue_.size() >= max_queued_) return Admission::kFull;
  queue_.push_back(job);
  wake_.notify_one();
  return Admission::kAdmitted;
}

int Worker::retry_after() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const double turns = static_cast<double>(queue_.size()) / static_cast<double>(parallel_);
  return static_cast<int>(std::clamp(std::ceil(mean_ms_ * turns / 2e3), 1.0, 60.0));
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
  model_.interrupt();  // it may be waiting for weights
  thread_.join();
  slots_.keep_all();
}

void Worker::loop() {
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
    }
    const Status driven = model_.drive([this](int32_t max_ops) { return step(max_ops); });
    if (!driven.ok()) end_all(driven);
  }
}

bool Worker::abandoned(const Job& job) const {
  return stop_ || job.channel.left() || monotonic_ms() > job.deadline;
}

// Why a request is aborted.
Status Worker::reason() const {
  if (stop_) return error(Code::kAborted, "the server is shutting down");
  return error(Code::kAborted, "the request took longer than this server allows");
}

// One round: aborts requests without readers, starts waiting requests, then runs a part of a pass.
Step Worker::step(int32_t max_ops) {
  for (Task& task : tasks_) {
    if (!task.ended && abandoned(*task.job)) give_up(task, reason());
  }
  take_jobs();
  const Step reached = compute(max_ops);
  if (seen_ != nullptr) follow_pictures();
  bool changed = false;
  for (auto a = answers_.begin(); a != answers_.end();) {
    take_pieces(*a);
    const bool over = a->generation->finish() != Finish::kNone;
    changed = changed || over;
    if (over) end_answer(*a);
    a = over ? answers_.erase(a) : std::next(a);
  }
  for (Task& task : tasks_) settle(task);
  changed = std::erase_if(tasks_,
                          [](const Task& task) { return task.ended && task.unread.empty(); }) > 0 ||
            changed;
  running_ = tasks_.size();
  if (reached != Step::kDone) return reached;
  if (tasks_.empty()) return Step::kDone;
  const bool embeds = std::any_of(tasks_.begin(), tasks_.end(),
                                  [](const Task& task) { return task.embedder != nullptr; });
  if (!changed && !embeds) {  // wait for readers
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait_for(lock, kLookAgain);
  }
  return Step::kProgress;
}

// Alternates between batches of generations and embedding passes.
Step Worker::compute(int32_t max_ops) {
  if (embedding_ != nullptr) return embed(max_ops);
  const Step chosen = scheduler_.choose(max_ops);
  if (chosen != Step::kDone) return chosen;
  const bool turn = !embedded_last_ || !scheduler_.waiting();
  if (turn && !model_.engine().passes().under_way() && begin_embedding_pass())
    return Step::kProgress;
  const Step reached = scheduler_.step(max_ops);
  if (!model_.engine().passes().under_way()) embedded_last_ = false;
  return reached;
}

// Starts waiting requests in order, while slots are free.
void Worker::take_jobs() {
  if (seeing_ != nullptr) return;
  for (Task& task : tasks_) {
    begin(task);
    if (!task.ended && task.begun < answers_of(*task.job))
      return;  // it must start completely first
  }
  expect_next();
  while (slots_.has_free() && seeing_ == nullptr) {
    std::shared_ptr<Job> job = next_job();
    if (job == nullptr) return;
    Task& task = tasks_.emplace_back();
    running_ = tasks_.size();
    task.job = std::move(job);
    task.job->begun = monotonic_ms();
    if (abandoned(*task.job)) {
      give_up(task, reason());
    } else if (task.job->embedding) {
      begin_embedding(task);
    } else {
      begin(task);
      if (task.begun < answers_of(*task.job) && task.failure.ok()) return;
    }
  }
}

std::shared_ptr<Job> Worker::next_job() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (queue_.empty() || must_wait(*queue_.front())) return nullptr;
  std::shared_ptr<Job> job = std::move(queue_.front());
  queue_.pop_front();
  return job;
}

// A request with pictures begins when no other one is running.
bool Worker::must_wait(const Job& job) const {
  return !job.pictures.empty() &&
         std::any_of(tasks_.begin(), tasks_.end(), [](const Task& task) { return !task.ended; });
}

// Makes the tokens of a prompt with pictures.
Status Worker::read_pictures(Job& job) {
  SLUICE_RETURN_IF_ERROR(pictures_->end());
  for (std::vector<uint8_t>& file : job.pictures) {
    SLUICE_RETURN_IF_ERROR(pictures_->add_file(file, decoding_));
    file = {};
  }
  Result<std::vector<Token>> tokens = pictures_->layout(job.text, job.encoding);
  if (!tokens.ok()) return tokens.status();
  job.prompts[0] = std::move(*tokens);
  return {};
}

// Encodes the pictures that the slot does not hold. Its session is then in no batch until the
// prompt is computed, unless it holds all of them.
Status Worker::see_prompt(Job& job, Slot& slot, generate::Options* options) {
  const std::vector<Token>& prompt = job.prompts[0];
  if (options->reuse_prefix && pictures_->held_by(slot.session(), prompt)) return {};
  scheduler_.remove(slot.session());
  return pictures_->encode(slot.session(), prompt, options, [&] { return abandoned(job); });
}

// Lets the session into batches with others once its prompt is computed, and takes back the memory
// when no generation needs the pictures any more.
void Worker::follow_pictures() {
  Task& task = *seen_;
  Status status;
  if (seeing_ != nullptr) {
    const bool over = seeing_->generation->finish() != Finish::kNone;
    session::Session& session = seeing_->slot->session();
    if (!over && (seeing_->generation->in_prompt() || session.busy())) return;
    if (!session.batch_share().batched) status = scheduler_.add(session);
    seeing_ = nullptr;
  }
  if (task.failure.ok() && status.ok() && task.begun < answers_of(*task.job)) return;
  seen_ = nullptr;
  const Status ended = pictures_->end();
  if (status.ok()) status = ended;
  if (!status.ok()) give_up(task, status);
}

void Worker::begin(Task& task) {
  while (task.failure.ok() && task.begun < answers_of(*task.job) && slots_.has_free()) {
    if (!begin_answer(task)) return;
  }
}

// Starts the task's next generation. False if it has to wait: a prompt that several generations
// share is computed once, then copied.
bool Worker::begin_answer(Task& task) {
  Job& job = *task.job;
  const int32_t index = task.begun, first = index / job.n * job.n;
  const bool sees = !job.pictures.empty();
  if (sees && seen_ == nullptr) {
    if (const Status read = read_pictures(job); !read.ok()) {
      give_up(task, read);
      return false;
    }
    seen_ = &task;
  }
  const std::vector<Token>& prompt = job.prompts[static_cast<size_t>(index / job.n)];
  const session::Session* source = nullptr;
  bool shared = false;
  for (const Answering& a : answers_) {
    if (a.task != &task || a.index < first) continue;
    const session::Session& other = a.slot->session();
    shared = true;
    if (!other.busy() && other.tokens().size() >= prompt.size()) source = &other;
  }
  if (shared && (source == nullptr || (sees && task.unshared))) return false;
  const Result<Slot*> taken = slots_.take(prompt, job.cache_key);
  if (!taken.ok()) {
    give_up(task, taken.status());
    return false;
  }
  Slot& slot = **taken;
  if (source != nullptr && Slots::prefix(slot, prompt) + 1 < prompt.size()) {
    static_cast<void>(slot.session().fork_from(*source));  // on failure it is recomputed
  } else {
    slots_.recall(slot, prompt);
  }
  if (sees && shared && !pictures_->held_by(slot.session(), prompt)) {
    task.unshared = true;  // each computes them, one after another
    slots_.free(slot);
    return false;
  }
  generate::Options options = job.options;
  options.reuse_prefix = options.reuse_prefix || (sees && shared);
  options.sampling.seed += static_cast<decltype(options.sampling.seed)>(index);
  std::unique_ptr<generate::NextnDraft> nextn;
  if (model_.engine().nextn() != nullptr && options.drafts.ngram) {
    nextn = std::make_unique<generate::NextnDraft>(*model_.engine().nextn());
    options.drafts.model = nextn.get();
  }
  const Status ready = sees ? see_prompt(job, slot, &options) : Status();
  auto generation = ready.ok() ? generate::Generation::begin(slot.session(), prompt, options)
                               : Result<std::unique_ptr<generate::Generation>>(ready);
  if (!generation.ok()) {
    if (!slot.session().batch_share().batched) static_cast<void>(scheduler_.add(slot.session()));
    slots_.free(slot);
    give_up(task, generation.status());
    return false;
  }
  if (index == 0) tell(task, {.kind = Event::Kind::kStarted});
  ++task.begun;
  ++task.running;
  scheduler_.add(**generation);
  answers_.push_back({&task, index, &slot, std::move(nextn), std::move(*generation)});
  if (!slot.session().batch_share().batched) seeing_ = &answers_.back();
  return true;
}

void Worker::take_pieces(Answering& answering) {
  for (generate::Piece& piece : answering.generation->take_pieces()) {
    tell(*answering.task, {.kind = Event::Kind::kPiece,
                           .index = answering.index,
                           .piece = std::move(piece),
                           .counts = answering.generation->counts()});
  }
}

void Worker::end_answer(Answering& answering) {
  const generate::Generation& g = *answering.generation;
  Task& task = *answering.task;
  metrics_.count_answer(g.counts(), g.finish(), task.job->begun - task.job->arrived);
  scheduler_.remove(g);
  slots_.free(*answering.slot);
  --task.running;
  if (g.finish() == Finish::kFailed) {
    give_up(task, g.failure());
  } else if (task.failure.ok()) {
    tell(task, {.kind = Event::Kind::kAnswered,
                .index = answering.index,
                .finish = g.finish(),
                .stop = g.stop_string(),
                .counts = g.counts()});
  }
}

void Worker::begin_embedding(Task& task) {
  const Result<Slot*> taken = slots_.take({});
  if (!taken.ok()) return give_up(task, taken.status());
  task.slot = *taken;
  session::Session& session = task.slot->session();
  scheduler_.remove(session);
  session.clear();
  task.embedder = std::make_unique<embed::Embedder>(session);
  Job& job = *task.job;
  const Status begun = task.embedder->begin(job.tokens, job.ends, job.embed_options);
  if (!begun.ok()) return give_up(task, begun);
  job.width = task.embedder->width();
  job.vectors.reserve(job.ends.size() * static_cast<size_t>(job.width));
}

// Begins the next pass of the first embeddings request; false if there is none.
bool Worker::begin_embedding_pass() {
  for (Task& task : tasks_) {
    if (task.embedder == nullptr) continue;
    const Result<bool> more = task.embedder->next();
    if (!more.ok()) {
      give_up(task, more.status());
    } else if (*more) {
      embedding_ = &task;
      return true;
    } else {
      metrics_.count_embedding(task.job->ends.size(), task.job->tokens.size());
      end_embedding(task);
    }
  }
  return false;
}

Step Worker::embed(int32_t max_ops) {
  Task& task = *embedding_;
  const Step reached = task.embedder->step(max_ops);
  if (reached == Step::kFailed) {
    const Status why = task.embedder->failure();
    give_up(task, why);
  } else if (reached == Step::kDone) {
    for (int32_t i = 0; i < task.embedder->n_results(); ++i) {
      const std::span<const float> row = task.embedder->result(i);
      task.job->vectors.insert(task.job->vectors.end(), row.begin(), row.end());
    }
    embedding_ = nullptr;
    embedded_last_ = true;
  }
  return reached == Step::kBlocked ? reached : Step::kProgress;
}

// Empties the session, because an embedded text cannot be continued.
void Worker::end_embedding(Task& task) {
  if (embedding_ == &task) embedding_ = nullptr;
  if (task.slot == nullptr) return;
  task.embedder.reset();
  task.slot->session().clear();
  slots_.free(*task.slot);
  task.slot = nullptr;
}

void Worker::give_up(Task& task, Status why) {
  if (task.failure.ok()) task.failure = std::move(why);
  end_embedding(task);
  for (Answering& a : answers_) {
    if (a.task == &task) a.generation->cancel();  // step() frees its slot in the same round
  }
}

// Emits the last event when the task is complete, and events that did not fit before.
void Worker::settle(Task& task) {
  const bool over = !task.failure.ok() || task.begun == answers_of(*task.job);
  if (!task.ended && over && task.running == 0 && task.embedder == nullptr) {
    Event last;
    last.kind = task.failure.ok() ? Event::Kind::kDone : Event::Kind::kFailed;
    last.failure = task.failure;
    task.ended = true;
    tell(task, std::move(last));
    const double ms = monotonic_ms() - task.job->begun;
    const std::lock_guard<std::mutex> lock(mutex_);
    mean_ms_ = mean_ms_ == 0 ? ms : 0.8 * mean_ms_ + 0.2 * ms;
  }
  show(task);
}

void Worker::tell(Task& task, Event event) {
  if (task.unread.empty()) {
    if (task.job->channel.push(std::move(event))) return;
    task.full_since = monotonic_ms();
  }
  task.unread.push_back(std::move(event));
}

// Moves unread events to the channel. While some are left, the task's generations are paused.
void Worker::show(Task& task) {
  while (!task.unread.empty() && task.job->channel.push(std::move(task.unread.front()))) {
    task.unread.pop_front();
    task.full_since = monotonic_ms();
  }
  const bool full = !task.unread.empty();
  if (full && (stop_ || monotonic_ms() - task.full_since > kReaderMs)) {
    task.job->channel.leave();
    task.unread.clear();
  }
  for (const Answering& a : answers_) {
    if (a.task == &task) scheduler_.hold(a.slot->session(), full);
  }
}

// Ends all requests, after an engine failure or on shutdown.
void Worker::end_all(const Status& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!stop_) failure_ = why;
  }
  while (std::shared_ptr<Job> job = next_job()) tasks_.emplace_back().job = std::move(job);
  for (Task& task : tasks_) give_up(task, stop_ ? reason() : why);
  if (seen_ != nullptr) static_cast<void>(pictures_->end());
  seen_ = nullptr;
  seeing_ = nullptr;
  for (Answering& a : answers_) {
    take_pieces(a);
    end_answer(a);
  }
  answers_.clear();
  for (Task& task : tasks_) settle(task);
  tasks_.clear();
  running_ = 0;
}

// While no slot is free for the next request, reads ahead the conversation that it will continue.
void Worker::expect_next() {
  if (slots_.has_free()) return;
  std::shared_ptr<Job> job;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!queue_.empty()) job = queue_.front();
  }
  if (job == nullptr || job.get() == expected_ || job->prompts.empty()) return;
  if (!job->pictures.empty()) return;  // its tokens come later
  expected_ = job.get();
  slots_.expect(job->prompts[0], job->cache_key);
}

}  // namespace sluice::serve
