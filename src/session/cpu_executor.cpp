// Stepping through the program.
#include "session/cpu_executor.h"

namespace sluice::session {

CpuExecutor::CpuExecutor(Engine& engine) : engine_(engine), feed_(engine), row_feed_(engine) {
  size_t products = 4;
  for (const std::vector<int32_t>& heads : engine.program().by_head) {
    products = std::max(products, heads.size());
  }
  products_.reserve(products);
}

void CpuExecutor::begin(Timeline& timeline, int32_t n, Rows rows) {
  timeline_ = &timeline;
  batch_ = n;
  wanted_ = rows;
  active_ = true;
  failure_ = {};
  restart();
}

// The batch from its first operation on: when it begins, and when what it has computed is lost.
void CpuExecutor::restart() {
  first_ = timeline_->position();
  rows_ = batch_;
  pc_ = 0;
  mark_ = 0;
  read_failed_ = false;
  cursor_ = {};
  feed_.restart();
  // What a batch that was given up had asked for would keep its slots from what comes first.
  engine_.residency().set_demand({});
  replans_seen_ = engine_.replans();
}

void CpuExecutor::next_op() {
  observe_marks();
  cursor_ = {};
  feed_.restart();
  ++pc_;
}

Step CpuExecutor::step(int32_t* max_ops) {
  if (!active_) return failure_.ok() ? Step::kDone : Step::kFailed;
  if (replans_seen_ != engine_.replans()) restart();
  const std::vector<model::Op>& ops = engine_.program().ops;
  engine_.pump();
  for (; *max_ops > 0; --*max_ops) {
    if (pc_ > 0) row_feed_.request();
    observe_before(ops[pc_]);
    const bool ran = run_op(ops[pc_]);
    if (!engine_.failure().ok()) {  // of weights that it has met
      active_ = false;
      failure_ = engine_.failure();
      return Step::kFailed;
    }
    if (!ran) {
      if (read_failed_) {  // what the batch has computed is incomplete
        restart();
        continue;
      }
      // Something may have arrived since the last look.
      if (engine_.pump() || engine_.help_reading()) continue;
      return Step::kBlocked;
    }
    next_op();
    const bool cut = ops[pc_ - 1].kind == model::OpKind::kSelect && rows_ == 0;
    if (pc_ == ops.size() || cut) {
      active_ = false;
      --*max_ops;
      engine_.pump();  // prefetch for the next batch
      return Step::kDone;
    }
  }
  return Step::kProgress;
}

bool CpuExecutor::run_products() {
  switch (feed_.run(products_)) {
    case WeightFeed::Run::kDone:
      return true;
    case WeightFeed::Run::kBlocked:
      return false;
    case WeightFeed::Run::kReadFailed:
      read_failed_ = true;
      return false;
  }
  return false;
}

std::span<float> CpuExecutor::logits(int32_t row) const {
  return {buffer(model::Buf::kLogits) + row * engine_.width(model::Buf::kLogits),
          static_cast<size_t>(engine_.program().hp.n_vocab)};
}

int32_t CpuExecutor::layer() const {
  return active_ ? engine_.program().ops[pc_].layer : -1;
}

}  // namespace sluice::session
