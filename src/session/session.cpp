// Computes and moves one sequence: sync, begin, step, rewind, save and restore.
#include "session/session.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "session/batcher.h"

namespace sluice::session {

Result<std::unique_ptr<Session>> Session::create(const SessionContext& context) {
  kv::KvCache cache;
  if (!context.sequences.acquire(&cache)) {
    return error(Code::kInvalidArgument,
                 "all %d sessions that the engine was loaded for are in use",
                 context.plan.sessions.n_sessions);
  }
  return std::unique_ptr<Session>(new Session(context, cache));
}

Session::Session(const SessionContext& context, kv::KvCache cache)
    : cx_(context), sequence_(cache) {
  ends_.reserve(static_cast<size_t>(context.largest_batch));
}

Session::~Session() {
  if (batcher_ != nullptr) batcher_->remove(*this);
  cancel();
  cx_.sequences.release(sequence_.cache());
}

namespace {

// Rows of logits of a pass over `tokens`.
int32_t rows_of(std::span<const Token> tokens, Wanted wanted) {
  if (wanted == Wanted::kLastLogits) return 1;
  return static_cast<int32_t>(tokens.size()) - source_of(tokens);
}

}  // namespace

Result<int32_t> Session::sync(std::span<const Token> tokens, Wanted wanted) {
  const int32_t n = static_cast<int32_t>(
      std::min<size_t>(tokens.size(), static_cast<size_t>(cx_.plan.context.n_ctx)));
  const int32_t prefix = outdated() ? 0 : sequence_.shared_prefix(tokens);
  int32_t shared = std::min(prefix, std::max(n, 1) - 1);
  if (shared < source_of(tokens)) shared = 0;  // encoder input is one batch
  const int32_t kept = sequence_.reachable(shared);
  const std::span<const Token> rest = tokens.subspan(static_cast<size_t>(kept));
  SLUICE_RETURN_IF_ERROR(admission().text(rest, kept, rows_of(rest, wanted)));
  sequence_.rewind(shared);
  begin_logits(rest, rows_of(rest, wanted));
  return kept;
}

int32_t Session::keep(std::span<const Token> tokens) {
  const int32_t prefix = outdated() ? 0 : sequence_.shared_prefix(tokens);
  return rewind(std::min(prefix, static_cast<int32_t>(std::max<size_t>(tokens.size(), 1)) - 1));
}

Status Session::begin(std::span<const Token> tokens, Wanted wanted) {
  const int32_t n_rows = rows_of(tokens, wanted);
  SLUICE_RETURN_IF_ERROR(
      admission().text(tokens, sequence_.bidirectional() ? 0 : position(), n_rows));
  if (sequence_.bidirectional()) sequence_.clear();
  begin_logits(tokens, n_rows);
  return {};
}

Status Session::begin_last(std::span<const Token> tokens, int32_t n_rows) {
  if (n_rows < 1 || static_cast<size_t>(n_rows) > tokens.size() || sequence_.bidirectional() ||
      tokens.size() > static_cast<size_t>(cx_.plan.batch.draft_batch)) {
    return error(Code::kInvalidArgument,
                 "a forward pass of %zu tokens cannot compute the logits of its last %d",
                 tokens.size(), n_rows);
  }
  SLUICE_RETURN_IF_ERROR(admission().text(tokens, position(), n_rows));
  begin_logits(tokens, n_rows);
  return {};
}

Status Session::begin_queue(Token token, int32_t n, const StepQueue& queue) {
  SLUICE_RETURN_IF_ERROR(begin({&token, 1}));
  spec_.queue = &queue;
  // Only the first query of a batch may evict, and a queue is one batch.
  const int32_t most = std::min(n, sequence_.tokens_until_eviction());
  pass_end_ = std::min(position() + most, cx_.plan.context.n_ctx);
  begin_batch();  // in place of the one of a single step
  return {};
}

// Adds the tokens that a queue chose to the sequence, and returns how many of its steps count.
int32_t Session::end_queue() {
  const std::span<const Token> chosen = cx_.executor->chosen();
  const int32_t steps = std::max(static_cast<int32_t>(chosen.size()), 1);
  if (!chosen.empty()) sequence_.append_chosen(chosen.first(chosen.size() - 1));
  pass_end_ = position() + steps;
  return steps;
}

std::span<const Token> Session::chosen() const {
  if (spec_.queue == nullptr || pass_ != cx_.passes.last()) return {};
  return cx_.executor->chosen();
}

Status Session::begin_rows(std::span<const Token> tokens, int32_t first, int32_t count) {
  if (!sequence_.bidirectional() || first < 0 || count < 1 ||
      int64_t{first} + count > static_cast<int64_t>(tokens.size())) {
    return error(Code::kInvalidArgument,
                 "rows %d to %d are out of range, or the model is not bidirectional", first,
                 first + count - 1);
  }
  SLUICE_RETURN_IF_ERROR(admission().text(tokens, 0, count));
  sequence_.clear();
  begin_logits(tokens, count, first);
  return {};
}

Status Session::begin_media(const MediaInput& input) {
  SLUICE_RETURN_IF_ERROR(admission().media(input));
  SLUICE_RETURN_IF_ERROR(admission().length(static_cast<size_t>(input.n_tokens), position(), 0));
  BatchSpec spec;
  spec.media.rows = input.rows.data();
  spec.media.width = static_cast<int64_t>(input.rows.size()) / input.n_tokens;
  spec.media.non_causal = input.non_causal;
  media_from_ = position();
  start_pass(spec, {});
  sequence_.append(input);
  pass_end_ = position() + input.n_tokens;
  pass_ = cx_.passes.begin();
  begin_batch();
  return {};
}

Status Session::begin_embedding(std::span<const Token> tokens, const EmbedPass& pass) {
  if (batcher_ != nullptr) {
    return error(Code::kInvalidArgument, "embeddings cannot be computed by a session in a batch");
  }
  const int32_t kept = pass.begins ? 0 : position();
  SLUICE_RETURN_IF_ERROR(admission().inputs(pass, static_cast<int64_t>(tokens.size())));
  SLUICE_RETURN_IF_ERROR(admission().text(tokens, kept, 0));
  if (pass.begins) sequence_.clear();
  // An input in parts, a recurrent state and quantized keys use the sequence; several inputs in one
  // batch each begin at position 0.
  const bool in_parts = !pass.begins || !pass.completes;
  const bool side_by_side = !in_parts && !sequence_.cache().shape().one_text();
  BatchSpec spec;
  spec.embed = true;
  spec.pooling = pass.pooling;
  spec.begins = pass.begins;
  spec.completes = pass.completes;
  begin_pass(tokens, spec, side_by_side ? pass.ends : std::span<const int32_t>());
  return {};
}

// Begins a pass for the logits of `n_rows` tokens from `first` on; -1: the last ones.
void Session::begin_logits(std::span<const Token> tokens, int32_t n_rows, int32_t first) {
  const int32_t n = static_cast<int32_t>(tokens.size());
  BatchSpec spec;
  spec.n_rows = n_rows;
  spec.first_row = first >= 0 ? first : n - n_rows;
  const int32_t text = sequence_.bidirectional() ? n : source_of(tokens);
  begin_pass(tokens, spec, {&text, text > 0 ? size_t{1} : size_t{0}});
}

void Session::begin_pass(std::span<const Token> tokens, const BatchSpec& spec,
                         std::span<const int32_t> ends) {
  start_pass(spec, ends);
  sequence_.append(tokens);
  pass_end_ = position() + static_cast<int32_t>(tokens.size());
  if (batcher_ != nullptr) return;
  pass_ = cx_.passes.begin();
  begin_batch();
}

void Session::start_pass(const BatchSpec& spec, std::span<const int32_t> ends) {
  sequence_.end_restore();
  if (position() == 0) computed_with_ = cx_.adapters.sum();
  ends_.assign(ends.begin(), ends.end());
  spec_ = spec;
  spec_.ends = ends_;
  active_ = true;
  failure_ = {};
  stats_ = {};
  pass_ = 0;
  first_logits_ = 0;
}

void Session::begin_batch() {
  const int32_t source = sequence_.source() - position();  // encoder input still to read
  const int32_t max_tokens = std::min(cx_.plan.batch.n_batch, sequence_.tokens_until_eviction());
  batch_ = source > 0 ? source : std::min(max_tokens, pass_end_ - position());
  const bool last = position() + batch_ == pass_end_;
  sequence_.begin_batch(batch_);
  BatchSpec spec = last ? spec_ : BatchSpec{};
  // Several rows of logits come from one batch, unless an eviction splits it.
  const int32_t wanted = std::max(0, pass_end_ - spec_.n_rows - position());
  if (spec_.media.rows != nullptr) {
    spec.media = spec_.media;
    spec.media.rows += (position() - media_from_) * spec.media.width;
  } else if (!spec_.embed && !sequence_.bidirectional() && wanted < batch_) {
    spec.first_row = wanted;
    spec.n_rows = batch_ - wanted;
    spec.logits_at = position() + wanted - (pass_end_ - spec_.n_rows);
    spec.ends = {};
  }
  if (source > 0) {
    spec.encode = true;
    spec.ends = ends_;
  }
  cx_.executor->begin(sequence_, batch_, spec);
}

Step Session::step(int32_t max_ops) {
  if (active_ && !cx_.failure().ok()) fail(cx_.failure());
  if (!active_) return failure_.ok() ? Step::kDone : Step::kFailed;
  if (batcher_ != nullptr) return Step::kBlocked;
  const double start = monotonic_ms();
  int32_t left = max_ops > 0 ? max_ops : std::numeric_limits<int32_t>::max();
  Step result = Step::kProgress;
  while (left > 0) {
    // The buffers of a smaller plan may be too small for the batch.
    if (batch_ > cx_.plan.batch.n_batch) {
      if (spec_.embed) {
        fail(error(Code::kInvalidArgument,
                   "%d inputs in one forward pass do not fit the new budget",
                   static_cast<int>(ends_.size())));
        result = Step::kFailed;
        break;
      }
      if (spec_.media.non_causal) {
        fail(error(Code::kBudgetTooSmall,
                   "a picture of %d tokens, which is computed in one batch, does not fit the new "
                   "budget",
                   pass_end_ - position()));
        result = Step::kFailed;
        break;
      }
      begin_batch();
    }
    result = cx_.executor->step(&left);
    if (result != Step::kDone) break;
    const int32_t computed = spec_.queue != nullptr ? end_queue() : batch_;
    sequence_.commit_batch(computed);
    stats_.tokens += static_cast<uint64_t>(computed);
    if (position() == pass_end_) {
      active_ = false;
      if (!spec_.embed && spec_.part == nullptr && spec_.queue == nullptr) {
        cx_.costs.note(static_cast<int32_t>(stats_.tokens), cx_.passes.ms());
      }
      cx_.passes.end();
      // The cache holds several inputs, or another input's decoder keys: it cannot be continued.
      if (ends_.size() > 1 || (spec_.embed && sequence_.cache().shape().answers)) sequence_.clear();
      break;
    }
    begin_batch();
    result = Step::kProgress;
  }
  if (result == Step::kBlocked) ++stats_.blocked;
  if (result == Step::kFailed && active_) fail(cx_.executor->failure());
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
  pass_ = 0;
  if (batcher_ != nullptr) return batcher_->drop(*this);
  cx_.executor->abandon();
  cx_.passes.end();
}

BatchShare Session::batch_share() const {
  if (batcher_ == nullptr) return {.logits_rows = cx_.plan.batch.logits_rows};
  return {true, batcher_->rows_share(), batcher_->sharing()};
}

std::span<float> Session::logits(int32_t row) const {
  if (active_ || pass_ == 0 || pass_ != cx_.passes.last() || spec_.embed) return {};
  return cx_.executor->logits(first_logits_ + row);
}

std::span<float> Session::embedding(int32_t i) const {
  if (active_ || pass_ == 0 || pass_ != cx_.passes.last() || !spec_.embed) return {};
  return cx_.executor->embedding(i);
}

int32_t Session::rewind(int32_t n) {
  cancel();
  if (n < position()) pass_ = 0;
  return sequence_.rewind(n);
}

void Session::clear() {
  cancel();
  pass_ = 0;
  sequence_.clear();
}

Status Session::read_state(uint64_t offset, std::span<uint8_t> out) const {
  if (active_) return error(Code::kInvalidArgument, "a forward pass is running");
  const uint64_t adapters = position() > 0 ? computed_with_ : cx_.adapters.sum();
  return sequence_.read_state(cx_.fingerprint(adapters), offset, out);
}

Status Session::begin_restore(uint64_t bytes) {
  if (active_) return error(Code::kInvalidArgument, "a forward pass is running");
  pass_ = 0;
  computed_with_ = cx_.adapters.sum();
  return sequence_.begin_restore(bytes);
}

Status Session::fork_from(const Session& other) {
  constexpr uint64_t kPiece = 64 << 10;
  clear();
  if (other.position() == 0) return {};
  const uint64_t total = other.sequence_.state_bytes();
  SLUICE_RETURN_IF_ERROR(begin_restore(total));
  computed_with_ = other.computed_with_;  // perhaps not the adapters in use now
  std::vector<uint8_t> piece(static_cast<size_t>(std::min(total, kPiece)));
  for (uint64_t at = 0; at < total; at += piece.size()) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(piece.size(), total - at)));
    SLUICE_RETURN_IF_ERROR(other.read_state(at, piece));
    SLUICE_RETURN_IF_ERROR(write_state(piece));
  }
  return {};
}

Status Session::write_state(std::span<const uint8_t> piece) {
  return sequence_.write_state(cx_.fingerprint(computed_with_), cx_.program.hp.n_vocab, piece);
}

}  // namespace sluice::session
