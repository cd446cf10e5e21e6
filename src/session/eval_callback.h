// Checkpoints for `sluice dump`: passes intermediate values of the operation just done to the
// observer, and recomputes what fused attention never materializes (scores and probabilities).
#pragma once

#include <vector>

#include "session/cpu_batch.h"

namespace sluice::session {

class EvalCallback {
 public:
  // A null function ends it.
  void observe(Observer observer) { observer_ = std::move(observer); }
  [[nodiscard]] bool on() const { return static_cast<bool>(observer_); }
  // A batch (re)starts.
  void restart() { mark_ = 0; }
  // Saves the buffer that an operation will add to, so that checkpoints can show the addend alone.
  void before(const CpuBatch& cx, const model::Op& op);
  // Emits the checkpoints of operation `at`, which is done.
  void after(CpuBatch& cx, size_t at);

 private:
  void unweighted_norm(const CpuBatch& cx, const model::Op& op);
  void attention(CpuBatch& cx, int32_t layer, const model::AttentionOp& op);

  Observer observer_;
  size_t mark_ = 0;            // the next checkpoint
  std::vector<float> before_;  // observed batches only
};

}  // namespace sluice::session
