// Runs the program of operations (ops.h) on the CPU, over the rows of the batch. An operation that
// needs weights records its progress and resumes there; nothing blocks and nothing is allocated per
// token.
#pragma once

#include "session/eval_callback.h"
#include "session/weight_ops.h"

namespace sluice::session {

class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(const ExecutionContext& context) : cx_(context) {}

  void begin(Sequence& sequence, int32_t n, const BatchSpec& spec) override;
  [[nodiscard]] Step step(int32_t* max_ops) override;
  [[nodiscard]] int32_t max_parts() const override { return kMaxSessions; }
  void drop(const Sequence& sequence) override;
  void abandon() override { active_ = false; }
  [[nodiscard]] const Sequence* sequence() const override { return cx_.sequence; }
  [[nodiscard]] const Status& failure() const override { return failure_; }
  [[nodiscard]] std::span<float> logits(int32_t row) const override;
  [[nodiscard]] std::span<float> embedding(int32_t i) const override;
  [[nodiscard]] int32_t layer() const override;
  // The next operation.
  [[nodiscard]] size_t at() const { return cx_.at; }
  // Continues a batch that has begun at `op`: everything before is done, its rows of kX are set.
  void go_on_at(size_t op) { cx_.at = op; }
  // Evicts what the attention operations of the batch would, for a batch that runs elsewhere.
  void evict();
  // Whether the batch's rows of all tables but the first have arrived, for a batch that runs
  // elsewhere.
  [[nodiscard]] bool rows_ready();
  // Requests the weights of the next operation, whose layer is not in the streaming order.
  void demand_weights();
  void observe(Observer observer) override { eval_.observe(std::move(observer)); }
  void watch_products(ProductWatch watch) override { cx_.watch = watch; }
  void hook_routing(RoutingHook hook) override { cx_.routing = hook; }

 private:
  void restart();
  [[nodiscard]] Step run_ops(int32_t* max_ops);
  void next_op();
  void add_deepstack();
  void expect_decoder();
  [[nodiscard]] const model::Tail& tail() const;
  [[nodiscard]] size_t after(size_t pc) const;  // the next operation; after the last: the end

  WeightBatch cx_;
  EvalCallback eval_;
  bool active_ = false;
  uint32_t replans_seen_ = 0;
  Status failure_;
};

}  // namespace sluice::session
