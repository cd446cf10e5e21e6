// The life of a timeline: sync, begin, step, rewind, save and restore.
#include "session/session.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"

namespace sluice::session {

Result<std::unique_ptr<Session>> Session::create(Engine& engine) {
  kv::KvCache cache;
  if (!engine.pool_of_timelines().acquire(&cache)) {
    return error(Code::kInvalidArgument, "the engine was planned for %d sessions at a time",
                 engine.plan().n_sessions);
  }
  return std::unique_ptr<Session>(new Session(engine, cache));
}

Session::~Session() {
  cancel();
  engine_.pool_of_timelines().release(timeline_.cache());
}

// Whether `tokens` can follow the first `kept` of the timeline.
Status Session::admit(std::span<const Token> tokens, int32_t kept, Wanted wanted) const {
  const MemoryPlan& plan = engine_.plan();
  if (!engine_.failure().ok()) return engine_.failure();
  if (active_) return error(Code::kInvalidArgument, "a pass is already under way");
  if (engine_.pass_under_way()) {
    return error(Code::kInvalidArgument, "another session's pass is under way");
  }
  if (tokens.empty()) return error(Code::kPromptEmpty, "there are no tokens to process");
  const int64_t room = plan.n_ctx - kept;
  if (static_cast<int64_t>(tokens.size()) > room) {
    if (kept == 0 || tokens.size() > 1) {
      return error(Code::kPromptTooLong,
                   "the prompt has %lld tokens but the context holds %d: shorten it, or load with "
                   "a larger one",
                   static_cast<long long>(kept) + static_cast<long long>(tokens.size()),
                   plan.n_ctx);
    }
    return error(Code::kContextFull, "the context of %d tokens is full (%d used, %zu more wanted)",
                 plan.n_ctx, kept, tokens.size());
  }
  const int32_t rows = std::min(plan.logits_rows, plan.n_batch);
  if (wanted == Wanted::kAllLogits && static_cast<int64_t>(tokens.size()) > rows) {
    return error(Code::kInvalidArgument, "logits are kept for %d tokens at most", rows);
  }
  for (const Token token : tokens) {
    if (token < 0 || token >= engine_.program().hp.n_vocab) {
      return error(Code::kInvalidArgument, "the token %d is not in the vocabulary", token);
    }
  }
  return {};
}

Result<int32_t> Session::sync(std::span<const Token> tokens, Wanted wanted) {
  const int32_t most = static_cast<int32_t>(
      std::min<size_t>(tokens.size(), static_cast<size_t>(engine_.plan().n_ctx)));
  const int32_t shared = std::min(timeline_.shared_prefix(tokens), std::max(most, 1) - 1);
  const int32_t kept = timeline_.reachable(shared);
  SLUICE_RETURN_IF_ERROR(admit(tokens.subspan(static_cast<size_t>(kept)), kept, wanted));
  timeline_.rewind(shared);
  begin_pass(tokens.subspan(static_cast<size_t>(kept)), wanted);
  return kept;
}

Status Session::begin(std::span<const Token> tokens, Wanted wanted) {
  SLUICE_RETURN_IF_ERROR(admit(tokens, position(), wanted));
  begin_pass(tokens, wanted);
  return {};
}

void Session::begin_pass(std::span<const Token> tokens, Wanted wanted) {
  timeline_.end_restore();
  timeline_.append(tokens);
  pass_end_ = position() + static_cast<int32_t>(tokens.size());
  wanted_ = wanted;
  active_ = true;
  failure_ = {};
  stats_ = {};
  pass_ = engine_.begin_pass();
  begin_batch();
}

void Session::begin_batch() {
  batch_ = std::min(engine_.plan().n_batch, pass_end_ - position());
  const bool last = position() + batch_ == pass_end_;
  timeline_.begin_batch(batch_);
  const Rows rows = wanted_ == Wanted::kAllLogits ? Rows::kAll : last ? Rows::kLast : Rows::kNone;
  engine_.executor().begin(timeline_, batch_, rows);
}

Step Session::step(int32_t max_ops) {
  if (active_ && !engine_.failure().ok()) fail(engine_.failure());
  if (!active_) return failure_.ok() ? Step::kDone : Step::kFailed;
  const double start = monotonic_ms();
  int32_t left = max_ops > 0 ? max_ops : std::numeric_limits<int32_t>::max();
  Step result = Step::kProgress;
  while (left > 0) {
    // Buffers that have moved to a smaller plan may not hold the batch any more.
    if (batch_ > engine_.plan().n_batch) begin_batch();
    result = engine_.executor().step(&left);
    if (result != Step::kDone) break;
    timeline_.commit_batch(batch_);
    stats_.tokens += static_cast<uint64_t>(batch_);
    if (position() == pass_end_) {
      active_ = false;
      engine_.end_pass();
      break;
    }
    begin_batch();
    result = Step::kProgress;
  }
  if (result == Step::kBlocked) ++stats_.blocked;
  if (result == Step::kFailed) fail(engine_.executor().failure());
  stats_.compute_ms += monotonic_ms() - start;
  return result;
}

void Session::fail(Status status) {
  cancel();
  failure_ = std::move(status);
}

void Session::cancel() {
  failure_ = {};
  if (!active_) return;
  active_ = false;
  engine_.executor().abandon();
  engine_.end_pass();
  pass_ = 0;
}

std::span<float> Session::logits(int32_t row) const {
  if (active_ || pass_ == 0 || pass_ != engine_.last_pass()) return {};
  return engine_.executor().logits(row);
}

int32_t Session::rewind(int32_t n) {
  cancel();
  if (n < position()) pass_ = 0;
  return timeline_.rewind(n);
}

void Session::clear() {
  cancel();
  pass_ = 0;
  timeline_.clear();
}

uint64_t Session::state_bytes() const {
  return timeline_.state_bytes(engine_.identity());
}

Status Session::read_state(uint64_t offset, std::span<uint8_t> out) const {
  if (active_) return error(Code::kInvalidArgument, "a pass is under way");
  return timeline_.read_state(engine_.identity(), offset, out);
}

Status Session::begin_restore(uint64_t bytes) {
  if (active_) return error(Code::kInvalidArgument, "a pass is under way");
  pass_ = 0;
  return timeline_.begin_restore(bytes);
}

Status Session::write_state(std::span<const uint8_t> piece) {
  return timeline_.write_state(engine_.identity(), engine_.program().hp.n_vocab, piece);
}

}  // namespace sluice::session
