// Chooses the sessions of each batch, and how many tokens of each.
#include "session/batcher.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"

namespace sluice::session {
namespace {

constexpr int32_t kFirstBeside = 32, kMinBeside = 4;
constexpr double kPace = 3;  // a batch may take this many times as long with prompts as without

}  // namespace

Batcher::Batcher(const SessionContext& context) : cx_(context), beside_(kFirstBeside) {
  const size_t n = static_cast<size_t>(context.plan.sessions.parallel);
  members_.reserve(n);
  taken_.reserve(n);
  parts_.reserve(n);
}

Batcher::~Batcher() {
  while (!members_.empty()) remove(*members_.back());
}

bool Batcher::takes(const ExecutionContext& context) {
  const kv::KvShape& shape = context.plan.kv.shape;
  return !shape.bidirectional && !shape.answers;
}

Status Batcher::add(Session& session) {
  if (session.batcher_ == this) return {};
  if (session.busy() || session.batcher_ != nullptr || !takes(cx_) || &session.cx_ != &cx_) {
    return error(Code::kInvalidArgument, "this session cannot be added to a batch now");
  }
  if (members_.size() == static_cast<size_t>(cx_.plan.sessions.parallel)) {
    return error(Code::kInvalidArgument, "the engine was loaded for %d parallel sessions",
                 cx_.plan.sessions.parallel);
  }
  members_.push_back(&session);
  session.batcher_ = this;
  return {};
}

void Batcher::remove(Session& session) {
  if (session.batcher_ != this) return;
  session.cancel();
  session.batcher_ = nullptr;
  session.held_ = false;
  std::erase(members_, &session);
}

void Batcher::hold(Session& session, bool held) {
  if (session.batcher_ == this) session.held_ = held;
}

bool Batcher::ready(const Session& session) {
  return session.busy() && !session.held_;
}

bool Batcher::waiting() const {
  return under_way_ ||
         std::any_of(members_.begin(), members_.end(), [](const Session* s) { return ready(*s); });
}

int32_t Batcher::rows_share() const {
  const MemoryPlan& plan = cx_.plan;
  return std::max(1, std::min(plan.batch.logits_rows, plan.batch.n_batch) / shared_by_);
}

bool Batcher::is_short(const Session& session) const {
  return session.pass_end_ - session.position() <= cx_.plan.batch.draft_batch;
}

// Takes the session's next tokens, at most `max_tokens`. Several rows of logits must come from one
// batch.
bool Batcher::take(Session& session, int32_t max_tokens, Room* room) {
  const int32_t left = session.pass_end_ - session.position();
  const int32_t rows = session.spec_.n_rows;
  int32_t n = std::min({left, max_tokens, room->tokens, session.sequence_.tokens_until_eviction()});
  if (n == left && rows > room->rows) n = rows > 1 ? 0 : left - 1;
  if (n < left && rows > 1) n = 0;
  if (n <= 0) return false;
  const bool last = n == left;
  session.sequence_.begin_batch(n);
  parts_.push_back({&session.sequence_, n, last ? n - rows : 0, last ? rows : 0});
  taken_.push_back(&session);
  room->tokens -= n;
  room->rows -= last ? rows : 0;
  tokens_ += n;
  return true;
}

// Sessions take turns at being first, which guarantees a place. Short passes come next; long passes
// get the remaining tokens.
bool Batcher::begin() {
  parts_.clear();
  taken_.clear();
  tokens_ = 0;
  prompts_ = 0;
  const MemoryPlan& plan = cx_.plan;
  for (Session* s : members_) {
    if (!ready(*s)) continue;
    if (s->outdated()) s->fail(adapters_changed());
    if (s->position() == 0) s->computed_with_ = cx_.adapters.sum();
  }
  const size_t n = members_.size();
  const size_t max_parts = static_cast<size_t>(cx_.executor->max_parts());
  Room room{plan.batch.n_batch, plan.batch.logits_rows};
  int32_t answers = 0;
  for (const Session* s : members_) answers += ready(*s) && is_short(*s) ? 1 : 0;
  int32_t beside = answers > 0 ? beside_ : plan.batch.n_batch;
  const auto try_take = [&](Session& s) {
    const bool brief = is_short(s);
    const int32_t before = tokens_;
    if (!take(s, brief ? plan.batch.n_batch : beside, &room)) return;
    if (brief) return;
    beside -= tokens_ - before;
    prompts_ += tokens_ - before;
  };
  const auto is_taken = [&](const Session* s) {
    return std::find(taken_.begin(), taken_.end(), s) != taken_.end();
  };
  for (const bool brief : {true, true, false}) {
    for (size_t i = 0; i < n && taken_.size() < max_parts; ++i) {
      Session& s = *members_[(turn_ + i) % n];
      const bool first = taken_.empty();  // of any length
      if (ready(s) && !is_taken(&s) && (first || is_short(s) == brief)) try_take(s);
    }
  }
  turn_ = n > 0 ? (turn_ + 1) % n : 0;
  if (taken_.empty()) return false;
  shared_by_ = static_cast<int32_t>(taken_.size());
  static_cast<void>(cx_.passes.begin());
  BatchSpec spec;
  spec.first_row = parts_[0].first_row;
  spec.n_rows = parts_[0].n_rows;
  if (parts_.size() > 1) spec.parts = parts_;
  cx_.executor->begin(*parts_[0].sequence, parts_[0].n, spec);
  under_way_ = true;
  return true;
}

Step Batcher::step(int32_t max_ops) {
  if (!cx_.failure().ok()) fail(cx_.failure());
  if (under_way_ && tokens_ > cx_.plan.batch.n_batch) {  // the plan became smaller
    cx_.executor->abandon();
    end();
  }
  if (!under_way_) {
    if (cx_.passes.under_way()) return Step::kBlocked;
    if (!begin()) return Step::kDone;
  }
  const double start = monotonic_ms();
  int32_t left = max_ops > 0 ? max_ops : std::numeric_limits<int32_t>::max();
  const Step result = cx_.executor->step(&left);
  const double ms = monotonic_ms() - start;
  counts_.compute_ms += ms;
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i] == nullptr) continue;
    taken_[i]->stats_.compute_ms += ms * parts_[i].n / tokens_;
    if (result == Step::kBlocked) ++taken_[i]->stats_.blocked;
  }
  if (result == Step::kDone) commit();
  if (result == Step::kFailed) fail(cx_.executor->failure());
  return result;
}

void Batcher::commit() {
  int32_t row = 0;
  ++counts_.passes;
  counts_.tokens += static_cast<uint64_t>(tokens_);
  for (size_t i = 0; i < taken_.size(); ++i) {
    const BatchPart& part = parts_[i];
    Session* s = taken_[i];
    if (s != nullptr) {
      s->sequence_.commit_batch(part.n);
      s->stats_.tokens += static_cast<uint64_t>(part.n);
      if (s->position() == s->pass_end_) {
        s->active_ = false;
        s->pass_ = cx_.passes.last();
        s->first_logits_ = row;
      }
    }
    row += part.n_rows;
  }
  if (const double ms = cx_.passes.ms(); ms > 0) note(ms);
  end();
}

// Adjusts how many prompt tokens a batch may take without slowing decode steps too much.
void Batcher::note(double ms) {
  cx_.costs.note(tokens_, ms);
  if (prompts_ == 0) answers_ms_ = answers_ms_ == 0 ? ms : answers_ms_ + (ms - answers_ms_) / 4;
  if (prompts_ == 0 || prompts_ == tokens_ || answers_ms_ == 0) return;
  if (ms > kPace * answers_ms_) {
    beside_ = std::max(kMinBeside, beside_ * 3 / 4);
  } else {
    beside_ = std::min(cx_.plan.batch.n_batch, beside_ + std::max(1, beside_ / 8));
  }
}

void Batcher::end() {
  under_way_ = false;
  cx_.passes.end();
}

void Batcher::fail(const Status& why) {
  if (under_way_) {
    cx_.executor->abandon();
    end();
  }
  const bool all = !cx_.failure().ok();
  for (Session* s : all ? members_ : taken_) {
    if (s != nullptr && s->busy()) s->fail(why);
  }
}

void Batcher::drop(Session& session) {
  if (!under_way_) return;
  const auto at = std::find(taken_.begin(), taken_.end(), &session);
  if (at == taken_.end()) return;
  *at = nullptr;
  if (std::all_of(taken_.begin(), taken_.end(), [](Session* s) { return s == nullptr; })) {
    cx_.executor->abandon();
    end();
  } else {
    cx_.executor->drop(session.sequence_);
  }
}

}  // namespace sluice::session
