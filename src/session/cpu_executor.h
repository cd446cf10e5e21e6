// Runs the program of operations (ops.h) on the CPU, over the rows of the batch. An operation that
// needs weights records its progress and resumes there; nothing blocks and nothing is allocated per
// token.
#pragma once

#include <vector>

#include "session/cpu_batch.h"
#include "session/embedding_rows.h"
#include "session/eval_callback.h"
#include "session/lora.h"
#include "session/weight_stream.h"

namespace sluice::session {

class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(const ExecutionContext& context);

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
  [[nodiscard]] size_t at() const { return pc_; }
  // Continues a batch that has begun at `op`: everything before is done, its rows of kX are set.
  void go_on_at(size_t op) { pc_ = op; }
  // Requests the weights of the next operation, whose layer is not in the streaming order.
  void demand_weights();
  void observe(Observer observer) override { eval_.observe(std::move(observer)); }
  void watch_products(ProductWatch watch) override { watch_ = watch; }
  void hook_routing(RoutingHook hook) override { routing_ = hook; }

 private:
  // Progress inside an operation that can block.
  struct Cursor {
    bool started = false;
    int32_t phase = 0;  // of an expert
  };

  void restart();
  [[nodiscard]] Step run_ops(int32_t* max_ops);
  [[nodiscard]] bool run_op(const model::Op& op);  // false: blocked
  [[nodiscard]] bool run_products();
  [[nodiscard]] bool settle(WeightRun ran);  // false: not done
  void next_op();
  void add_deepstack();
  void expect_decoder();
  [[nodiscard]] bool vectors_ready(const model::Op& op);
  [[nodiscard]] const model::Tail& tail() const;
  [[nodiscard]] size_t after(size_t pc) const;  // the next operation; after the last: the end

  [[nodiscard]] bool op_embed(const model::Op& op);
  void complete_rows(const model::Op& op);
  [[nodiscard]] bool op_matmul(const model::Op& op);
  [[nodiscard]] bool op_approximate(const model::Op& op);
  [[nodiscard]] bool op_rows(const model::Op& op);
  [[nodiscard]] bool op_head_matmul(const model::Op& op);
  [[nodiscard]] bool op_moe(const model::Op& op);
  void note_experts(const model::Moe& moe);
  void demand_from(const model::Moe& moe, int32_t first);
  [[nodiscard]] bool run_expert(const model::Op& op, const ExpertRun& run);

  CpuBatch cx_;
  WeightStream feed_;
  EmbeddingRows row_feed_;
  Lora lora_;
  EvalCallback eval_;
  bool active_ = false;
  size_t pc_ = 0;
  uint32_t replans_seen_ = 0;
  bool read_failed_ = false;
  Status failure_;
  Cursor cursor_;
  std::vector<Product> products_;
  std::vector<uint32_t> demand_;
  int32_t n_runs_ = 0, run_ = 0;            // experts with tokens, and the current one
  std::vector<residency::ExpertUse> uses_;  // of the current mixture
  ProductWatch watch_;
  RoutingHook routing_;
};

}  // namespace sluice::session
