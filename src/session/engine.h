// A loaded model: program, tokenizer, weights under the memory budget, and the compute buffer. The
// engine does no I/O; a driver serves residency().queue(). Its sessions (sequences) compute one at
// a time, or together in a batcher (batcher.h).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "draft/policy.h"
#include "grammar/vocabulary.h"
#include "kv/kv_cache.h"
#include "model/program.h"
#include "residency/residency.h"
#include "session/compute_buffer.h"
#include "session/fingerprint.h"
#include "session/finite_check.h"
#include "session/memory_plan.h"
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
  [[nodiscard]] residency::Residency& residency() { return residency_; }
  [[nodiscard]] const residency::Residency& residency() const { return residency_; }
  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  [[nodiscard]] RangeReader* reader() { return options_.reader; }

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
  [[nodiscard]] const Status& failure() const { return failure_; }

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
  [[nodiscard]] uint32_t replans() const { return replans_; }
  // The largest n_batch that plan() ever has.
  [[nodiscard]] int32_t largest_batch() const { return options_.n_batch; }

  // --- forward passes, one at a time ------------------------------------------------------------
  [[nodiscard]] Executor& executor() const { return *executor_; }
  // Replaces the CPU executor; call before the first pass.
  void compute_with(std::unique_ptr<Executor> executor);
  [[nodiscard]] kv::KvPool& pool_of_sequences() { return sequences_; }
  // Begins a pass and returns its number.
  [[nodiscard]] uint64_t begin_pass();
  void end_pass() { pass_under_way_ = false; }
  [[nodiscard]] bool pass_under_way() const { return pass_under_way_; }
  [[nodiscard]] uint64_t last_pass() const { return last_pass_; }
  // Milliseconds since the pass began; 0 if it waited for pinned weights, which others will not.
  [[nodiscard]] double pass_ms() const;
  // Measured latency of small batches under this budget, including waits for weights.
  [[nodiscard]] draft::BatchLatency& costs() { return costs_; }
  // Acceptance of draft tokens for this model, or, for a draft model, of those it generates.
  [[nodiscard]] draft::DraftState& draft_state() { return draft_state_; }
  // The multi-token prediction (MTP) head; null if it was not requested.
  [[nodiscard]] NextnHead* nextn() { return nextn_.get(); }
  // The mode of an ApproximateOp.
  [[nodiscard]] Approximation& mode(int32_t i) { return *modes_[static_cast<size_t>(i)]; }
  [[nodiscard]] ApproximateState& approximate() { return approximate_; }
  [[nodiscard]] const ComputeBuffer& working() const { return working_; }
  [[nodiscard]] ComputeBuffer& working() { return working_; }
  [[nodiscard]] int64_t width(model::Buf b) const { return program_.width[static_cast<size_t>(b)]; }

  // --- weights ----------------------------------------------------------------------------------
  [[nodiscard]] int32_t item_of_mat(int32_t mat) const {
    return plan_.items.mat[static_cast<size_t>(mat)];
  }
  // A small tensor as f32; null until it has arrived.
  [[nodiscard]] const float* vec(int32_t index) const;
  // Packs pinned weights and converts small tensors whose bytes have arrived.
  void pack_loaded();
  [[nodiscard]] FiniteCheck& finite_check() { return weight_check_; }
  // Turns a failed check into failure(). Call after a FiniteCheck.
  void settle_check();
  // Sets failure(): rows [first, last] of a tensor have a value that is not finite.
  void refuse_weights(const std::string& tensor, int64_t first, int64_t last);
  // Collects completed reads and requests more; true if something arrived.
  bool poll();
  // Threads with nothing to compute serve pending requests beside the driver, because a device is
  // faster with several readers. True if they served any.
  bool help_reading();

 private:
  Engine() = default;
  void map_items();
  [[nodiscard]] Status adopt(MemoryPlan plan);
  [[nodiscard]] Result<MemoryPlan> plan_for(uint64_t budget, const AdapterNeeds& adapters) const;
  [[nodiscard]] Status replan(uint64_t budget, const AdapterNeeds& adapters);
  void settle_unit(uint32_t unit, int thread);

  model::Program program_;
  MemoryPlan plan_;
  int32_t left_layers_ = 0;  // offloaded to the GPU
  EngineOptions options_;    // as first planned
  uint64_t lent_ = 0;        // part of options_.reserve
  AdapterSet adapters_;
  Fingerprint fingerprint_;  // without the adapters
  uint32_t replans_ = 0;
  const kernels::Table* table_ = nullptr;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<grammar::TokenSource> token_source_;
  std::unique_ptr<grammar::Vocabulary> vocabulary_;
  std::unique_ptr<ThreadPool> own_pool_;
  ThreadPool* pool_ = nullptr;
  residency::Residency residency_;
  FiniteCheck weight_check_;
  std::vector<int32_t> item_mat_, item_vec_;  // the inverse of the plan's maps
  ComputeBuffer working_;
  kv::KvPool sequences_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<NextnHead> nextn_;
  uint64_t last_pass_ = 0;
  bool pass_under_way_ = false;
  double pass_began_ms_ = 0;
  uint32_t pins_absent_ = 0;  // when the pass began
  draft::BatchLatency costs_;
  draft::DraftState draft_state_;
  Approximations modes_;
  ApproximateState approximate_;
  Status failure_;
};

}  // namespace sluice::session
