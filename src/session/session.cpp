// The life of a timeline: begin, step, rewind, save and restore.
#include "session/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"

namespace sluice::session {
namespace {

constexpr uint32_t kStateMagic = 0x31564b53;  // "SKV1"

struct StateHeader {
  uint32_t magic = kStateMagic;
  uint32_t n_layer = 0, dk = 0, dv = 0;
  uint32_t position = 0;
  uint32_t conv_rows = 0;
};

}  // namespace

Result<std::unique_ptr<Session>> Session::create(Engine& engine) {
  std::unique_ptr<Session> session(new Session(engine));
  SLUICE_RETURN_IF_ERROR(session->init());
  return session;
}

Status Session::init() {
  const MemoryPlan& plan = engine_.plan();
  SLUICE_RETURN_IF_ERROR(kv_.init(plan.kv_shape));
  history_.resize(static_cast<size_t>(plan.n_ctx));
  row_held_.resize(static_cast<size_t>(engine_.largest_batch()));
  pieces_.reserve(kMaxPieces);
  products_.reserve(4);
  if (!engine_.program().moes.empty()) {
    const size_t used = static_cast<size_t>(engine_.program().hp.n_expert_used);
    const size_t n_batch = static_cast<size_t>(plan.n_batch);
    experts_.reserve(static_cast<size_t>(engine_.program().hp.n_expert));
    routed_.reserve(n_batch * used);
    chosen_.reserve(n_batch * used);
  }
  return {};
}

Status Session::begin(std::span<const Token> tokens, Wanted wanted) {
  const MemoryPlan& plan = engine_.plan();
  if (active_) return error(Code::kInvalidArgument, "a pass is already under way");
  if (tokens.empty()) return error(Code::kPromptEmpty, "there are no tokens to process");
  const int64_t room = plan.n_ctx - position_;
  if (static_cast<int64_t>(tokens.size()) > room) {
    if (position_ == 0 || tokens.size() > 1) {
      return error(Code::kPromptTooLong,
                   "the prompt has %lld tokens but the context holds %d: shorten it, or load with "
                   "a larger one",
                   static_cast<long long>(position_) + static_cast<long long>(tokens.size()),
                   plan.n_ctx);
    }
    return error(Code::kContextFull, "the context of %d tokens is full (%d used, %zu more wanted)",
                 plan.n_ctx, position_, tokens.size());
  }
  if (wanted == Wanted::kAllLogits &&
      static_cast<int64_t>(tokens.size()) > std::min(plan.logits_rows, plan.n_batch)) {
    return error(Code::kInvalidArgument, "logits are kept for %d tokens at most",
                 std::min(plan.logits_rows, plan.n_batch));
  }
  for (const Token token : tokens) {
    if (token < 0 || token >= engine_.program().hp.n_vocab) {
      return error(Code::kInvalidArgument, "the token %d is not in the vocabulary", token);
    }
  }
  std::copy(tokens.begin(), tokens.end(), history_.begin() + position_);
  pass_end_ = position_ + static_cast<int32_t>(tokens.size());
  wanted_ = wanted;
  active_ = true;
  stats_ = {};
  begin_batch();
  return {};
}

Result<int32_t> Session::sync(std::span<const Token> tokens, Wanted wanted) {
  size_t same = 0;
  const size_t most =
      std::min(static_cast<size_t>(position_), std::max<size_t>(tokens.size(), 1) - 1);
  while (same < most && history_[same] == tokens[same]) ++same;
  const int32_t kept = rewind(static_cast<int32_t>(same));
  SLUICE_RETURN_IF_ERROR(begin(tokens.subspan(static_cast<size_t>(kept)), wanted));
  return kept;
}

void Session::begin_batch() {
  batch_ = std::min(engine_.plan().n_batch, pass_end_ - position_);
  rows_ = batch_;
  pc_ = 0;
  mark_ = 0;
  cursor_ = {};
  // What a pass that was given up had asked for would keep its slots from what comes first.
  engine_.residency().set_demand({});
  replans_seen_ = engine_.replans();
}

void Session::end_batch() {
  position_ += batch_;
  stats_.tokens += static_cast<uint64_t>(batch_);
  if (position_ < pass_end_) {
    begin_batch();
  } else {
    active_ = false;
  }
}

Step Session::step(int32_t max_ops) {
  if (!active_) return Step::kDone;
  if (replans_seen_ != engine_.replans()) begin_batch();
  const double start = monotonic_ms();
  const std::vector<model::Op>& ops = engine_.program().ops;
  engine_.pump();
  Step result = Step::kProgress;
  for (int32_t n = 0; max_ops == 0 || n < max_ops; ++n) {
    observe_before(ops[pc_]);
    if (!run_op(ops[pc_])) {
      if (read_failed_) {  // what the batch has computed is incomplete
        read_failed_ = false;
        begin_batch();
        continue;
      }
      // Something may have arrived since the last look.
      if (engine_.pump() || engine_.help_reading()) continue;
      ++stats_.blocked;
      result = Step::kBlocked;
      break;
    }
    observe_marks();
    cursor_ = {};
    ++pc_;
    const bool cut = ops[pc_ - 1].kind == model::OpKind::kSelect && rows_ == 0;
    if (pc_ == ops.size() || cut) {
      end_batch();
      if (!active_) {
        engine_.pump();  // prefetch for the next pass
        result = Step::kDone;
        break;
      }
    }
  }
  stats_.compute_ms += monotonic_ms() - start;
  return result;
}

std::span<float> Session::logits(int32_t row) const {
  const int64_t n = engine_.program().hp.n_vocab;
  return {engine_.buffer(model::Buf::kLogits) + row * engine_.width(model::Buf::kLogits),
          static_cast<size_t>(n)};
}

int32_t Session::rewind(int32_t n) {
  active_ = false;
  const int32_t kernel = static_cast<int32_t>(engine_.program().hp.conv_kernel);
  // A pass under way may have written convolution rows up to the end of its batch.
  const int64_t reached = position_ + batch_;
  const int64_t target = std::clamp(n, 0, position_);
  position_ = static_cast<int32_t>(
      target == position_ && batch_ == 0 ? target : kv_.rewind_limit(target, reached, kernel));
  batch_ = 0;
  return position_;
}

int32_t Session::layer() const {
  return active_ ? engine_.program().ops[pc_].layer : -1;
}

uint64_t Session::saved_bytes() const {
  return sizeof(StateHeader) + static_cast<uint64_t>(position_) * sizeof(Token) +
         kv_.saved_bytes(position_);
}

Status Session::save(std::span<uint8_t> out) const {
  if (active_) return error(Code::kInvalidArgument, "a pass is under way");
  if (out.size() != saved_bytes())
    return error(Code::kInvalidArgument, "the buffer's size is wrong");
  const kv::KvShape& shape = kv_.shape();
  StateHeader h;
  h.n_layer = static_cast<uint32_t>(shape.n_head_kv.size());
  h.dk = static_cast<uint32_t>(shape.dk);
  h.dv = static_cast<uint32_t>(shape.dv);
  h.position = static_cast<uint32_t>(position_);
  h.conv_rows = static_cast<uint32_t>(shape.conv_rows);
  const size_t tokens = static_cast<size_t>(position_) * sizeof(Token);
  std::memcpy(out.data(), &h, sizeof h);
  std::memcpy(out.data() + sizeof h, history_.data(), tokens);
  kv_.save(position_, out.subspan(sizeof h + tokens));
  return {};
}

Status Session::restore(std::span<const uint8_t> in) {
  const Status bad = error(Code::kCorrupt, "the saved state does not belong to this model");
  if (active_) return error(Code::kInvalidArgument, "a pass is under way");
  StateHeader h;
  if (in.size() < sizeof h) return bad;
  std::memcpy(&h, in.data(), sizeof h);
  const kv::KvShape& shape = kv_.shape();
  if (h.magic != kStateMagic || h.n_layer != shape.n_head_kv.size() ||
      h.dk != static_cast<uint32_t>(shape.dk) || h.dv != static_cast<uint32_t>(shape.dv) ||
      h.conv_rows != static_cast<uint32_t>(shape.conv_rows)) {
    return bad;
  }
  if (h.position > static_cast<uint32_t>(shape.n_ctx)) {
    return error(Code::kContextFull, "the saved state has %u tokens but the context holds %d",
                 h.position, shape.n_ctx);
  }
  const size_t tokens = static_cast<size_t>(h.position) * sizeof(Token);
  if (in.size() < sizeof h + tokens) return bad;
  for (uint32_t i = 0; i < h.position; ++i) {
    Token token;
    std::memcpy(&token, in.data() + sizeof h + i * sizeof token, sizeof token);
    if (token < 0 || token >= engine_.program().hp.n_vocab) return bad;
  }
  if (!kv_.restore(h.position, in.subspan(sizeof h + tokens))) return bad;
  std::memcpy(history_.data(), in.data() + sizeof h, tokens);
  position_ = static_cast<int32_t>(h.position);
  batch_ = 0;
  return {};
}

}  // namespace sluice::session
