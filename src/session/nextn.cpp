// Stores hidden states for the MTP head, and runs its passes.
#include "session/nextn.h"

#include <algorithm>
#include <limits>

#include "session/session.h"

namespace sluice::session {

using model::Buf;

Status check_nextn(const EngineOptions& options) {
  const char* other = options.approximate.exits.on() ? "early exit"
                      : options.kv_policy.window || options.kv_policy.heavy_hitter
                          ? "a KV policy that evicts"
                          : nullptr;
  if (other == nullptr) return {};
  return error(Code::kInvalidArgument, "draft nextn cannot be combined with %s", other);
}

kv::KvShape nextn_shape(const model::Program& p, int32_t n_ctx) {
  kv::KvShape shape;
  shape.n_ctx = n_ctx;
  shape.layers.resize(static_cast<size_t>(p.nextn.layer) + 1);
  for (int32_t i = p.nextn.first; i < p.nextn.end; ++i) {
    const auto* attention = p.ops[static_cast<size_t>(i)].get<model::AttentionOp>();
    if (attention == nullptr) continue;
    kv::LayerShape& layer = shape.layers.back();
    layer.heads = attention->att.kv_heads;
    layer.dk = attention->att.dk;
    layer.dv = attention->att.dv;
    layer.values_in_keys = attention->att.values_in_keys;
    layer.window = attention->window;
    layer.capacity = n_ctx;
  }
  return shape;
}

uint64_t nextn_bytes(const model::Program& p, int32_t n_ctx) {
  const auto width = static_cast<uint64_t>(p.hp.n_embd), positions = static_cast<uint64_t>(n_ctx);
  return nextn_shape(p, n_ctx).bytes() + (kNextnStates + 1) * width * sizeof(float) +
         (positions + 2 * kNextnStates) * sizeof(Token) + sizeof(NextnHead);
}

Result<std::unique_ptr<NextnHead>> NextnHead::create(const ExecutionContext& context,
                                                     Passes& passes,
                                                     const std::unique_ptr<Executor>& executor) {
  std::unique_ptr<NextnHead> head(new NextnHead(context, passes, executor));
  const model::Program& p = context.program;
  head->width_ = static_cast<size_t>(p.hp.n_embd);
  head->states_.resize(kNextnStates * head->width_);
  head->tokens_.resize(kNextnStates);
  head->given_.resize(head->width_);
  head->next_.reserve(kNextnStates);
  SLUICE_RETURN_IF_ERROR(head->pool_.init(nextn_shape(p, context.plan.context.n_ctx), 1));
  kv::KvCache cache;
  if (!head->pool_.acquire(&cache))
    return error(Code::kOutOfMemory, "not enough memory for the KV cache of the MTP head");
  head->own_ = std::make_unique<Sequence>(cache);
  return head;
}

uint64_t NextnHead::weights() const {
  const model::Program& p = cx_.program;
  const model::Mat& head = p.mats[static_cast<size_t>(p.head)];
  return p.nextn.matrix_bytes + static_cast<uint64_t>(head.rows * head.row_bytes);
}

// A batch recomputes states from `first` on.
void NextnHead::begin_rows(const Sequence& sequence, int32_t first) {
  const bool goes_on = sequence_ == &sequence && restores_ == sequence.restores() &&
                       first >= from_ && first <= until_;
  sequence_ = &sequence;
  restores_ = sequence.restores();
  if (!goes_on) from_ = first;
  until_ = first;
}

void NextnHead::keep_rows(const Sequence& sequence, int32_t first, int32_t n, const float* x,
                          int64_t ld) {
  if (sequence_ != &sequence || until_ != first) return;
  for (int32_t t = std::max(0, n - kNextnStates); t < n; ++t) {
    std::copy_n(x + t * ld, width_, state(first + t));
    tokens_[static_cast<size_t>((first + t) % kNextnStates)] = sequence.token(first + t);
  }
  until_ = first + n;
  from_ = std::max(from_, until_ - kNextnStates);
}

bool NextnHead::start(const void* drafter) {
  if (drafter_ != nullptr && drafter_ != drafter) return false;
  drafter_ = drafter;
  return true;
}

void NextnHead::end(const void* drafter) {
  if (drafter_ != drafter) return;
  cancel();
  drafter_ = nullptr;
}

int32_t NextnHead::missing(const Session& target, std::span<const Token> upcoming) {
  const Sequence* const sequence = &target.sequence();
  if (computing_ || passes_.under_way() || target.batch_share().sessions > 1) return 0;
  if (sequence_ != sequence || restores_ != sequence->restores()) return 0;
  const std::span<const Token> held = target.tokens();
  const auto size = static_cast<int32_t>(held.size() + upcoming.size());
  const auto token = [&](int32_t i) {
    const auto at = static_cast<size_t>(i);
    return at < held.size() ? held[at] : upcoming[at - held.size()];
  };
  const int32_t last = size - 2;  // its state and next token predict the one after
  if (last < from_ || last >= until_) return 0;
  // States beyond the sequence may belong to rejected draft tokens, not to `upcoming`.
  const auto same = [&](int32_t i) {
    return tokens_[static_cast<size_t>(i % kNextnStates)] == token(i);
  };
  for (int32_t i = from_; i <= last; ++i) {
    if (!same(i)) return 0;
  }
  int32_t kept = read_ == sequence ? std::min({sure_, own_->position(), last - base_}) : 0;
  for (int32_t q = 0; q < kept; ++q) {
    if (own_->token(q) != token(base_ + q + 1)) kept = q;
  }
  if (kept <= 0 || base_ + kept < from_ ||
      last + 2 + draft::kMaxDraftTokens - base_ > cx_.plan.context.n_ctx) {
    kept = 0;
    base_ = from_;
    // The context is nearly full: start at the last state.
    if (last + 1 - base_ + draft::kMaxDraftTokens > cx_.plan.context.n_ctx) base_ = last;
  }
  static_cast<void>(own_->rewind(kept));
  read_ = sequence;
  sure_ = kept;
  next_.clear();
  for (int32_t i = base_ + kept; i <= last; ++i) next_.push_back(token(i + 1));
  return static_cast<int32_t>(next_.size());
}

void NextnHead::begin() {
  reading_ = true;
  begin_pass(static_cast<int32_t>(next_.size()));
}

bool NextnHead::go_on(Token token) {
  if (own_->position() >= cx_.plan.context.n_ctx || passes_.under_way()) return false;
  reading_ = false;
  next_.assign(1, token);
  begin_pass(1);
  return true;
}

void NextnHead::begin_pass(int32_t n) {
  failure_ = {};
  computing_ = true;
  rows_ = n;
  own_->append(next_);
  end_ = own_->position() + n;
  static_cast<void>(passes_.begin());
  begin_batch();
}

void NextnHead::begin_batch() {
  const int32_t at = own_->position();
  batch_ = std::min(cx_.plan.batch.n_batch, end_ - at);
  now_.states = reading_ ? states_.data() : given_.data();
  now_.rows = reading_ ? kNextnStates : 1;
  now_.first = reading_ ? base_ + at : 0;
  now_.normed = !reading_;
  now_.given = given_.data();
  own_->begin_batch(batch_);
  BatchSpec spec;
  spec.nextn = &now_;
  if (at + batch_ == end_) {
    spec.first_row = batch_ - 1;
    spec.n_rows = 1;
  }
  executor_->begin(*own_, batch_, spec);
}

Step NextnHead::step(int32_t max_ops) {
  if (!computing_) return failure_.ok() ? Step::kDone : Step::kFailed;
  int32_t left = max_ops > 0 ? max_ops : std::numeric_limits<int32_t>::max();
  while (left > 0) {
    if (!cx_.weights.failure().ok()) {
      cancel();
      failure_ = cx_.weights.failure();
      return Step::kFailed;
    }
    if (batch_ > cx_.plan.batch.n_batch) begin_batch();
    const Step result = executor_->step(&left);
    if (result == Step::kFailed) {
      const Status why = executor_->failure();
      cancel();
      failure_ = why;
    }
    if (result != Step::kDone) return result;
    own_->commit_batch(batch_);
    if (reading_) sure_ = own_->position();
    if (own_->position() == end_) {
      computing_ = false;
      costs_.note(rows_, passes_.ms());
      passes_.end();
      return Step::kDone;
    }
    begin_batch();
  }
  return Step::kProgress;
}

void NextnHead::cancel() {
  failure_ = {};
  if (!computing_) return;
  computing_ = false;
  executor_->abandon();
  passes_.end();
}

// --- called by the executor and operations

void note_states_begin(const CpuBatch& cx) {
  NextnHead* const head = cx.nextn.get();
  if (head == nullptr || cx.spec.nextn != nullptr) return;
  if (cx.lanes.size() > 1 || cx.spec.embed || cx.spec.encode || cx.in_part())
    return head->forget_rows();
  head->begin_rows(*cx.sequence, cx.first);
}

void note_states(const CpuBatch& cx) {
  NextnHead* const head = cx.nextn.get();
  if (head == nullptr || cx.spec.nextn != nullptr || cx.lanes.size() > 1) return;
  head->keep_rows(*cx.sequence, cx.first, cx.rows, cx.buffer(Buf::kX), cx.width(Buf::kX));
}

void enter_nextn(const CpuBatch& cx) {
  const NextnBatch& own = *cx.spec.nextn;
  const auto n = static_cast<size_t>(cx.program.hp.n_embd);
  for (int32_t t = 0; t < cx.rows; ++t) {
    const auto row = static_cast<size_t>((own.first + t) % own.rows);
    std::copy_n(own.states + row * n, n, cx.buffer(Buf::kT) + t * cx.width(Buf::kT));
  }
}

void leave_nextn(const CpuBatch& cx) {
  if (cx.rows == 0) return;
  std::copy_n(cx.buffer(Buf::kH), cx.program.hp.n_embd, cx.spec.nextn->given);
}

void demand_nextn(const CpuBatch& cx, size_t at, std::vector<uint32_t>& demand) {
  const model::Program& p = cx.program;
  residency::Residency& r = cx.weights.residency();
  if (r.plan().streamed_bytes == 0 && r.pins_pending() == 0) return;
  demand.clear();
  for (size_t i = at; i < p.ops.size() && !p.ops[i].is<model::MoeOp>(); ++i) {
    const auto* product = p.ops[i].get<model::MatmulOp>();
    if (product == nullptr) continue;
    for (const model::MatPart& part : product->parts()) {
      const int32_t item = cx.weights.item_of_mat(part.mat);
      for (uint32_t unit = r.plan().first_unit_of(item); unit < r.plan().end_unit_of(item);
           ++unit) {
        if (!r.plan().units[unit].pinned || !r.ready(unit)) demand.push_back(unit);
      }
    }
  }
  r.set_demand(demand);
}

}  // namespace sluice::session
