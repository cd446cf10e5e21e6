// Steps through the program of operations.
#include "session/cpu_executor.h"

namespace sluice::session {

CpuExecutor::CpuExecutor(Engine& engine) : engine_(engine), feed_(engine), row_feed_(engine) {
  size_t products = 4;
  for (const std::vector<int32_t>& heads : engine.program().by_head) {
    products = std::max(products, heads.size());
  }
  products_.reserve(products);
  tiles_.reserve(static_cast<size_t>(engine.largest_batch()));
  tokens_.reserve(static_cast<size_t>(engine.largest_batch()));
  lanes_.reserve(static_cast<size_t>(engine.plan().sessions.parallel));
}

void CpuExecutor::begin(Sequence& sequence, int32_t n, const BatchSpec& spec) {
  spec_ = spec;
  spec_.parts = {};
  active_ = true;
  failure_ = {};
  lanes_.clear();
  tokens_.clear();
  const BatchPart alone{&sequence, n, spec.first_row, spec.n_rows};
  for (const BatchPart& part :
       spec.parts.empty() ? std::span<const BatchPart>(&alone, 1) : spec.parts) {
    const int32_t first = part.sequence->position();
    lanes_.push_back({part, 0, 0, first, 0});
    for (int32_t t = 0; t < part.n; ++t) tokens_.push_back(part.sequence->token(first + t));
  }
  batch_ = static_cast<int32_t>(tokens_.size());
  restart();
}

void CpuExecutor::drop(const Sequence& sequence) {
  for (Lane& lane : lanes_) {
    if (lane.part.sequence == &sequence) lane.part.sequence = nullptr;
  }
}

void CpuExecutor::enter(const Lane& lane) {
  sequence_ = lane.part.sequence;
  row_ = lane.row;
  rows_ = lane.rows;
  first_ = lane.first;
  token_ = lane.token;
}

// (Re)starts the batch at its first operation: when it begins, and when its results are lost.
void CpuExecutor::restart() {
  int32_t row = 0;
  for (Lane& lane : lanes_) {
    if (lane.part.sequence != nullptr) lane.first = lane.part.sequence->position();
    lane.row = lane.token = row;
    lane.rows = lane.part.n;
    row += lane.rows;
  }
  enter(lanes_[0]);
  rows_ = batch_;
  pc_ = spec_.encode || spec_.embed ? 0 : static_cast<size_t>(engine_.program().decoder);
  mark_ = 0;
  read_failed_ = false;
  cursor_ = {};
  feed_.restart();
  // Drop the demands of an abandoned batch, which would keep slots from the first operations.
  engine_.residency().set_demand({});
  replans_seen_ = engine_.replans();
  if constexpr (kPartialForward) enter_part();
  if constexpr (model::kNextn) {
    note_states_begin();
    if (in_nextn()) enter_nextn();
  }
}

// Behind the first layers, adds the further values of a picture's rows.
void CpuExecutor::add_deepstack() {
  const MediaBatch& media = spec_.media;
  const int32_t layer = engine_.program().ops[pc_].layer;
  const int64_t n = engine_.program().hp.n_embd;
  const size_t next = after(pc_);
  const bool ends =
      next >= engine_.program().ops.size() || engine_.program().ops[next].layer != layer;
  if (layer < 0 || !ends || layer >= engine_.program().hp.media.n_deepstack) return;
  if (media.width < n * (layer + 2)) return;
  for (int32_t t = 0; t < rows_; ++t) {
    float* x = buffer(model::Buf::kX) + t * engine_.width(model::Buf::kX);
    engine_.table().add(x, media.rows + t * media.width + n * (layer + 1), n, x);
  }
}

void CpuExecutor::next_op() {
  if (spec_.media.rows != nullptr) add_deepstack();
  observe_marks();
  cursor_ = {};
  feed_.restart();
  pc_ = after(pc_);
}

Step CpuExecutor::step(int32_t* max_ops) {
  if (!active_) return failure_.ok() ? Step::kDone : Step::kFailed;
  if (replans_seen_ != engine_.replans()) restart();
  const std::vector<model::Op>& ops = engine_.program().ops;
  engine_.poll();
  for (; *max_ops > 0; --*max_ops) {
    if (!ops[pc_].is<model::EmbedOp>()) row_feed_.request();
    observe_before(ops[pc_]);
    const bool ran = run_op(ops[pc_]);
    if (!engine_.failure().ok()) {  // found bad weights
      active_ = false;
      failure_ = engine_.failure();
      return Step::kFailed;
    }
    if (!ran) {
      if (read_failed_) {  // the batch's results are incomplete
        restart();
        continue;
      }
      // Something may have arrived in the meantime.
      if (engine_.poll() || engine_.help_reading()) continue;
      return Step::kBlocked;
    }
    const bool cut = ops[pc_].is<model::SelectOp>() && rows_ == 0;
    next_op();
    const bool part_done = in_part() && pc_ == spec_.part->end;
    if (pc_ == ops.size() || cut || part_done) {
      active_ = false;
      if constexpr (kPartialForward) end_part();
      if constexpr (model::kNextn) {
        if (in_nextn()) leave_nextn();
      }
      --*max_ops;
      expect_decoder();
      engine_.poll();  // prefetch for the next batch
      return Step::kDone;
    }
  }
  return Step::kProgress;
}

// After any pass of an encoder-decoder model, the decoder's weights are needed next.
void CpuExecutor::expect_decoder() {
  const model::Program& p = engine_.program();
  size_t op = static_cast<size_t>(p.decoder);
  if (op == 0) return;
  while (!p.ops[op].is<model::MatmulOp>()) ++op;
  const int32_t item = engine_.item_of_mat(p.ops[op].as<model::MatmulOp>().all[0].mat);
  engine_.residency().set_cursor(engine_.residency().first_unit(item));
}

bool CpuExecutor::run_products() {
  if (!settle(feed_.run(products_))) return false;
  for (const Product& product : products_) {
    add_low_rank(product);
    if (watch_.see == nullptr) continue;
    const kernels::Acts& x = product.acts;
    watch_.see(watch_.context, engine_.program().mats[static_cast<size_t>(product.mat)], x.f32,
               x.ld, x.n_tokens);
  }
  return true;
}

bool CpuExecutor::settle(WeightRun ran) {
  if (ran == WeightRun::kReadFailed) read_failed_ = true;
  return ran == WeightRun::kDone;
}

const model::Tail& CpuExecutor::tail() const {
  const model::Program& p = engine_.program();
  return spec_.pooling == model::Pooling::kRank ? p.rank_tail : p.embed_tail;
}

size_t CpuExecutor::after(size_t pc) const {
  const model::Program& p = engine_.program();
  const size_t end = p.ops.size(), pool = static_cast<size_t>(p.pool);
  const size_t next = pc + 1;
  if constexpr (model::kNextn) {
    if (in_nextn()) {
      const bool norms = next == static_cast<size_t>(p.nextn.state_norm);
      return norms && is_normed() ? next + 1 : next;
    }
  }
  if (spec_.encode && next == static_cast<size_t>(p.decoder)) return end;
  if (!spec_.embed) return next == pool ? end : next;
  if (next == static_cast<size_t>(p.hidden)) return pool;
  if (next <= pool) return next;
  if (!spec_.completes && spec_.pooling != model::Pooling::kNone) return end;
  const size_t first = static_cast<size_t>(tail().first), last = static_cast<size_t>(tail().end);
  const size_t inside = pc == pool ? first : next;
  return inside < last ? inside : end;
}

int32_t CpuExecutor::position_of(int32_t t) const {
  if (spec_.ends.empty()) return first_ + t;
  const auto end = std::upper_bound(spec_.ends.begin(), spec_.ends.end(), t);
  return end == spec_.ends.begin() ? t : t - *(end - 1);
}

std::span<float> CpuExecutor::embedding(int32_t i) const {
  return {buffer(tail().out) + i * engine_.width(tail().out), static_cast<size_t>(tail().width)};
}

std::span<float> CpuExecutor::logits(int32_t row) const {
  return {engine_.working().buffer(model::Buf::kLogits) + row * engine_.width(model::Buf::kLogits),
          static_cast<size_t>(engine_.program().hp.n_vocab)};
}

int32_t CpuExecutor::layer() const {
  return active_ ? engine_.program().ops[pc_].layer : -1;
}

}  // namespace sluice::session
