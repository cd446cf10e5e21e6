// Steps through the program of operations.
#include "session/cpu_executor.h"

#include "session/kv_heavy_hitter.h"
#include "session/nextn.h"

namespace sluice::session {

void CpuExecutor::begin(Sequence& sequence, int32_t n, const BatchSpec& spec) {
  cx_.spec = spec;
  cx_.spec.parts = {};
  active_ = true;
  failure_ = {};
  cx_.lanes.clear();
  cx_.tokens.clear();
  const BatchPart alone{&sequence, n, spec.first_row, spec.n_rows};
  for (const BatchPart& part :
       spec.parts.empty() ? std::span<const BatchPart>(&alone, 1) : spec.parts) {
    const Sequence* own = part.sequence;  // null: dropped while the batch ran elsewhere
    cx_.lanes.push_back({part, 0, 0, 0, 0});
    for (int32_t t = 0; t < part.n; ++t) {
      cx_.tokens.push_back(own != nullptr ? own->token(own->position() + t) : 0);
    }
  }
  restart();
}

void CpuExecutor::drop(const Sequence& sequence) {
  for (Lane& lane : cx_.lanes) {
    if (lane.part.sequence == &sequence) lane.part.sequence = nullptr;
  }
}

// (Re)starts the batch at its first operation: when it begins, and when its results are lost.
void CpuExecutor::restart() {
  int32_t row = 0;
  for (Lane& lane : cx_.lanes) {
    if (lane.part.sequence != nullptr) lane.first = lane.part.sequence->position();
    lane.row = lane.token = row;
    lane.rows = lane.part.n;
    row += lane.rows;
  }
  cx_.enter(cx_.lanes[0]);
  cx_.rows = cx_.n_tokens();
  cx_.enter_op(cx_.spec.encode || cx_.spec.embed ? 0 : static_cast<size_t>(cx_.program.decoder));
  eval_.restart();
  cx_.observed = eval_.on();
  cx_.read_failed = false;
  // Drop the demands of an abandoned batch, which would keep slots from the first operations.
  cx_.weights.residency().set_demand({});
  replans_seen_ = cx_.weights.replans();
  if constexpr (kPartialForward) {
    if (cx_.in_part()) {
      cx_.at = cx_.spec.part->first;
      enter_part(cx_);
    }
  }
  if constexpr (model::kNextn) {
    note_states_begin(cx_);
    if (cx_.in_nextn()) {
      cx_.at = static_cast<size_t>(cx_.program.nextn.first);
      enter_nextn(cx_);
    }
  }
}

// Behind the first layers, adds the further values of a picture's rows.
void CpuExecutor::add_deepstack() {
  const MediaBatch& media = cx_.spec.media;
  const int32_t layer = cx_.program.ops[cx_.at].layer;
  const int64_t n = cx_.program.hp.n_embd;
  const size_t next = after(cx_.at);
  const bool ends = next >= cx_.program.ops.size() || cx_.program.ops[next].layer != layer;
  if (layer < 0 || !ends || layer >= cx_.program.hp.media.n_deepstack) return;
  if (media.width < n * (layer + 2)) return;
  for (int32_t t = 0; t < cx_.rows; ++t) {
    float* x = cx_.buffer(model::Buf::kX) + t * cx_.width(model::Buf::kX);
    cx_.table.add(x, media.rows + t * media.width + n * (layer + 1), n, x);
  }
}

void CpuExecutor::next_op() {
  if (cx_.spec.media.rows != nullptr) add_deepstack();
  eval_.after(cx_, cx_.at);
  cx_.enter_op(after(cx_.at));
}

Step CpuExecutor::step(int32_t* max_ops) {
  if (!active_) return failure_.ok() ? Step::kDone : Step::kFailed;
  const Step reached = run_ops(max_ops);
  cx_.times.enter(reached == Step::kBlocked ? TimePart::kWait : TimePart::kOther);
  return reached;
}

Step CpuExecutor::run_ops(int32_t* max_ops) {
  if (replans_seen_ != cx_.weights.replans()) restart();
  const std::vector<model::Op>& ops = cx_.program.ops;
  cx_.weights.poll();
  for (; *max_ops > 0; --*max_ops) {
    cx_.times.enter(cx_.program, ops[cx_.at]);
    if (!ops[cx_.at].is<model::EmbedOp>()) cx_.embeddings.request();
    if (!cx_.started) eval_.before(cx_, ops[cx_.at]);
    const bool ran = run_op(cx_, ops[cx_.at]);
    if (!cx_.weights.failure().ok()) {  // found bad weights
      active_ = false;
      failure_ = cx_.weights.failure();
      return Step::kFailed;
    }
    if (!ran) {
      if (cx_.read_failed) {  // the batch's results are incomplete
        restart();
        continue;
      }
      // Something may have arrived in the meantime.
      cx_.times.enter(TimePart::kWait);
      if (cx_.weights.poll() || cx_.weights.help_reading()) continue;
      return Step::kBlocked;
    }
    const bool cut = ops[cx_.at].is<model::SelectOp>() && cx_.rows == 0;
    next_op();
    const bool part_done = cx_.in_part() && cx_.at == cx_.spec.part->end;
    if (cx_.at == ops.size() || cut || part_done) {
      active_ = false;
      if constexpr (kPartialForward) {
        if (cx_.in_part()) end_part(cx_);
      }
      if constexpr (model::kNextn) {
        if (cx_.in_nextn()) leave_nextn(cx_);
      }
      --*max_ops;
      expect_decoder();
      cx_.weights.poll();  // prefetch for the next batch
      return Step::kDone;
    }
  }
  return Step::kProgress;
}

void CpuExecutor::evict() {
  for (const model::Op& op : cx_.program.ops) {
    const auto* own = op.get<model::AttentionOp>();
    if (own == nullptr || cx_.sequence->cache().layer(own->att.cache).slots == 0) continue;
    HeavyHitter(cx_, *own).evict_block(op.layer);
  }
}

bool CpuExecutor::rows_ready() {
  for (size_t table = 1; table < cx_.program.tables.size(); ++table) {
    if (!cx_.embeddings.ready(table)) return false;
  }
  return true;
}

// After any pass of an encoder-decoder model, the decoder's weights are needed next.
void CpuExecutor::expect_decoder() {
  const model::Program& p = cx_.program;
  size_t op = static_cast<size_t>(p.decoder);
  if (op == 0) return;
  while (!p.ops[op].is<model::MatmulOp>()) ++op;
  const int32_t item = cx_.weights.item_of_mat(p.ops[op].as<model::MatmulOp>().all[0].mat);
  cx_.weights.residency().set_cursor(cx_.weights.residency().plan().first_unit_of(item));
}

const model::Tail& CpuExecutor::tail() const {
  const model::Program& p = cx_.program;
  return cx_.spec.pooling == model::Pooling::kRank ? p.rank_tail : p.embed_tail;
}

size_t CpuExecutor::after(size_t pc) const {
  const model::Program& p = cx_.program;
  const size_t end = p.ops.size(), pool = static_cast<size_t>(p.pool);
  const size_t next = pc + 1;
  if constexpr (model::kNextn) {
    if (cx_.in_nextn()) {
      const bool norms = next == static_cast<size_t>(p.nextn.state_norm);
      return norms && cx_.spec.nextn->normed ? next + 1 : next;
    }
  }
  if (cx_.spec.encode && next == static_cast<size_t>(p.decoder)) return end;
  if (!cx_.spec.embed) return next == pool ? end : next;
  if (next == static_cast<size_t>(p.hidden)) return pool;
  if (next <= pool) return next;
  if (!cx_.spec.completes && cx_.spec.pooling != model::Pooling::kNone) return end;
  const size_t first = static_cast<size_t>(tail().first), last = static_cast<size_t>(tail().end);
  const size_t inside = pc == pool ? first : next;
  return inside < last ? inside : end;
}

std::span<float> CpuExecutor::embedding(int32_t i) const {
  return {cx_.buffer(tail().out) + i * cx_.width(tail().out), static_cast<size_t>(tail().width)};
}

std::span<float> CpuExecutor::logits(int32_t row) const {
  return {cx_.working.buffer(model::Buf::kLogits) + row * cx_.width(model::Buf::kLogits),
          static_cast<size_t>(cx_.program.hp.n_vocab)};
}

int32_t CpuExecutor::layer() const {
  return active_ ? cx_.program.ops[cx_.at].layer : -1;
}

}  // namespace sluice::session
