// A loaded model: program, tokenizer, weights under the memory budget, and the compute buffer. The
// engine does no I/O; a driver serves residency().queue(). Its sessions (sequences) compute one at
// a time, or together in a batcher (batcher.h).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "draft/policy.h"
#include "grammar/vocabulary.h"
#include "kv/kv_cache.h"
#include "model/program.h"
#include "residency/residency.h"
#include "session/compute_buffer.h"
#include "session/execution_context.h"
#include "session/fingerprint.h"
#include "session/memory_plan.h"
#include "session/passes.h"
#include "session/weights.h"
#include "tokenizer/tokenizer.h"

namespace sluice::session {

class Executor;
class NextnHead;

// Everything the header tells; shown by `sluice info` and Engine.inspect.
struct Inspection {
  model::Program program;
  Approximations modes;
  MemoryPlan plan;
  const kernels::Table* table = nullptr;
  AdapterSet adapters;  // not loaded
};

// Errors: build_program's, approximate()'s, plan_memory's, AdapterSet::bind's, kInvalidArgument for
// an unknown instruction set.
[[nodiscard]] Result<Inspection> inspect(const gguf::Header& header, const EngineOptions& options);

class Engine {
 public:
  // Copies what it needs from the header and allocates everything. Errors: inspect's,
  // tokenizer::create's, kBadTokenizer (vocabulary and embedding have different sizes),
  // AdapterSet::load's, kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> open(const gguf::Header& header,
                                                            const EngineOptions& options);
  ~Engine();

  [[nodiscard]] const model::Program& program() const { return program_; }
  [[nodiscard]] const MemoryPlan& plan() const { return plan_; }
  [[nodiscard]] const kernels::Table& table() const { return *table_; }
  [[nodiscard]] const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  // The vocabulary for grammars, built on first use. Errors: kBudgetTooSmall if the plan has no
  // memory for structured output, kOutOfMemory.
  [[nodiscard]] Result<const grammar::Vocabulary*> vocabulary();
  [[nodiscard]] Weights& weights() { return weights_; }
  [[nodiscard]] residency::Residency& residency() { return weights_.residency(); }
  [[nodiscard]] const residency::Residency& residency() const { return weights_.residency(); }
  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  // For executors and what they consist of.
  [[nodiscard]] const ExecutionContext& context() const { return *context_; }

  // What a sequence that was computed with these adapters (AdapterSet::sum()) depends on.
  [[nodiscard]] Fingerprint fingerprint(uint64_t adapters) const;
  [[nodiscard]] Fingerprint fingerprint() const { return fingerprint(adapters_.sum()); }
  // Adds the weights to the fingerprint. Until then they equal any. `hash` must be complete.
  void identify_weights(const WeightHash& hash) { hash.set(&fingerprint_); }

  // Changes the budget (0: as much as the model wants) for the same context. Sessions stay valid;
  // weights that stay pinned are not read again; a running pass restarts its batch. No read may be
  // pending. Errors, which leave everything unchanged: plan_memory's, kInvalidArgument,
  // kOutOfMemory. If even the old memory cannot be allocated again, failure() returns the error
  // from then on. failure() also reports weights that are not finite: kBadWeights, naming the
  // tensor.
  [[nodiscard]] Status set_memory_budget(uint64_t budget);
  // Whether later plans set memory aside for structured output (EngineOptions::structured_output).
  // An engine that was opened without begins here when a constraint first asks for it, and then
  // sets its budget again.
  void plan_structured_output(bool on) { options_.structured_output = on; }
  // Leaves `bytes` of the budget to others, in place of what it left them before. Errors:
  // set_memory_budget's, with nothing changed.
  [[nodiscard]] Status lend(uint64_t bytes);
  // What set_memory_budget would change to. Its `minimum` is the smallest budget that it accepts.
  [[nodiscard]] Result<MemoryPlan> plan_for(uint64_t budget) const {
    return plan_for(budget, adapters_.needs());
  }
  [[nodiscard]] const Status& failure() const { return weights_.failure(); }

  // The GPU computes the first `layers` layers and holds their weights. Memory then goes to the
  // other layers first; weights of offloaded layers are read only if the CPU has to compute them.
  // 0: the CPU computes all layers. Call between passes or as a batch begins. Errors:
  // set_memory_budget's.
  [[nodiscard]] Status offload_layers(int32_t layers);

  // Replaces the adapters, within the same budget; none: the bare model. Sessions recompute what
  // the old adapters computed. No pass and no read may be pending. The old and new adapters must
  // fit together while the new ones are read. Errors, which leave everything unchanged:
  // AdapterSet's, set_memory_budget's.
  [[nodiscard]] Status set_adapters(std::span<const adapter::Source> sources);
  // The smallest budget with which set_adapters succeeds; 0: none does.
  [[nodiscard]] uint64_t budget_for(std::span<const adapter::Source> sources) const;
  [[nodiscard]] const AdapterSet& adapters() const { return adapters_; }
  // Counts changes of the plan.
  [[nodiscard]] uint32_t replans() const { return weights_.replans(); }
  // The largest n_batch that plan() ever has.
  [[nodiscard]] int32_t largest_batch() const { return options_.n_batch; }

  // --- forward passes, one at a time ------------------------------------------------------------
  [[nodiscard]] Executor& executor() const { return *executor_; }
  // Replaces the CPU executor; call before the first pass.
  void compute_with(std::unique_ptr<Executor> executor);
  [[nodiscard]] kv::KvPool& pool_of_sequences() { return sequences_; }
  [[nodiscard]] Passes& passes() { return passes_; }
  // Measured latency of small batches under this budget, including waits for weights.
  [[nodiscard]] draft::BatchLatency& costs() { return costs_; }
  // Acceptance of draft tokens for this model, or, for a draft model, of those it generates.
  [[nodiscard]] draft::DraftState& draft_state() { return draft_state_; }
  // The multi-token prediction (MTP) head; null if it was not requested.
  [[nodiscard]] NextnHead* nextn() { return nextn_.get(); }
  [[nodiscard]] ApproximateState& approximate() { return approximate_; }
  [[nodiscard]] const ComputeBuffer& working() const { return working_; }
  [[nodiscard]] ComputeBuffer& working() { return working_; }
  [[nodiscard]] int64_t width(model::Buf b) const { return program_.width[static_cast<size_t>(b)]; }

 private:
  Engine() = default;
  [[nodiscard]] Status adopt(MemoryPlan plan);
  [[nodiscard]] Result<MemoryPlan> plan_for(uint64_t budget, const AdapterNeeds& adapters) const;
  [[nodiscard]] Status replan(uint64_t budget, const AdapterNeeds& adapters);

  model::Program program_;
  MemoryPlan plan_;
  int32_t left_layers_ = 0;  // offloaded to the GPU
  EngineOptions options_;    // as first planned
  uint64_t lent_ = 0;        // part of options_.reserve
  AdapterSet adapters_;
  Fingerprint fingerprint_;  // without the adapters
  const kernels::Table* table_ = nullptr;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<grammar::TokenSource> token_source_;
  std::unique_ptr<grammar::Vocabulary> vocabulary_;
  std::unique_ptr<ThreadPool> own_pool_;
  ThreadPool* pool_ = nullptr;
  ComputeBuffer working_;
  Weights weights_{program_, plan_, working_};
  Passes passes_{weights_};
  std::optional<ExecutionContext> context_;
  kv::KvPool sequences_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<NextnHead> nextn_;
  draft::BatchLatency costs_;
  draft::DraftState draft_state_;
  Approximations modes_;
  ApproximateState approximate_;
};

}  // namespace sluice::session
