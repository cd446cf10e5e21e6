// A loaded model: program, tokenizer, weights under the budget, and the working memory of a pass.
// It does no I/O: a driver serves residency().queue(). Sessions (sequences) run on it one at a
// time.
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
#include "session/finite_check.h"
#include "session/memory_plan.h"
#include "tokenizer/tokenizer.h"

namespace sluice::session {

class Executor;
class NextnHead;

// Logits that were computed for a part of the vocabulary, model/head_clusters.h.
struct HeadCounts {
  uint64_t rows = 0;      // of logits
  uint64_t known = 0;     // of them, those whose largest logit is known to be that of all tokens
  uint64_t products = 0;  // tokens, in all rows together, that were multiplied
};

// Rows that left before the last layer, model/early_exit.h.
struct ExitCounts {
  uint64_t rows = 0;    // computed where rows may leave
  uint64_t left = 0;    // of them, those that did
  uint64_t layers = 0;  // whose work was done, for all rows together
};

// While an engine measures (model::ExitPolicy): sees what tells whether a row leaves behind a
// layer, [model::kExitFeatures], and says whether it does.
struct ExitWatch {
  bool (*leaves)(void* context, int32_t layer, std::span<const float> features) = nullptr;
  void* context = nullptr;
};

// Everything known from the header: what `info` and `inspect` show.
struct Inspection {
  model::Program program;
  MemoryPlan plan;
  const kernels::Table* table = nullptr;
  AdapterSet adapters;  // not loaded
};

// Errors: build_program's, plan_memory's, AdapterSet::bind's, kInvalidArgument for an unknown
// instruction set.
[[nodiscard]] Result<Inspection> inspect(const gguf::Header& header, const EngineOptions& options);

class Engine {
 public:
  // Copies what it needs from the header; allocates everything. Errors: inspect's,
  // tokenizer::create's, kBadTokenizer (vocabulary and embedding differ), AdapterSet::load's,
  // kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> open(const gguf::Header& header,
                                                            const EngineOptions& options);
  ~Engine();

  [[nodiscard]] const model::Program& program() const { return program_; }
  [[nodiscard]] const MemoryPlan& plan() const { return plan_; }
  [[nodiscard]] const kernels::Table& table() const { return *table_; }
  [[nodiscard]] const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  // The vocabulary as grammars need it, made when it is first asked for. Errors: kBudgetTooSmall
  // where the plan has no room for grammars (EngineOptions::structured_output), kOutOfMemory.
  [[nodiscard]] Result<const grammar::Vocabulary*> vocabulary();
  [[nodiscard]] residency::Residency& residency() { return residency_; }
  [[nodiscard]] const residency::Residency& residency() const { return residency_; }
  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  [[nodiscard]] RangeReader* reader() { return options_.reader; }

  // Tells models apart, and what they compute with other adapters: a sum over the header's
  // description of this one, and over the adapters.
  [[nodiscard]] uint64_t identity() const { return identity_; }

  // Another budget (0: as much as the model wants) for the same context, while sessions live on;
  // weights that stay pinned are not read again. A pass under way starts its batch anew. No fill
  // may be under way. Errors, after which everything is as before: plan_memory's, kInvalidArgument,
  // kOutOfMemory; where the platform refuses even the former memory again, failure() says so from
  // then on. So it does when weights are not numbers: kBadWeights, naming the tensor.
  [[nodiscard]] Status set_memory_budget(uint64_t budget);
  [[nodiscard]] const Status& failure() const { return failure_; }

  // The first so many layers are another device's, which has their weights: memory is for the
  // others first, and theirs are read where the CPU computes them after all. 0: all are the CPU's
  // again. As set_memory_budget, whose errors it has, between passes or as a batch begins.
  [[nodiscard]] Status offload_layers(int32_t layers);

  // Other adapters than those it was opened with, in their place, within the same budget; none: the
  // model alone. What sessions have computed with the former ones they compute anew. No pass and no
  // fill may be under way. While the new ones are read, there must be room for the old ones too.
  // Errors, after which everything is as before: AdapterSet's, set_memory_budget's.
  [[nodiscard]] Status set_adapters(std::span<const adapter::Source> sources);
  [[nodiscard]] const AdapterSet& adapters() const { return adapters_; }
  // Counts changes of the plan.
  [[nodiscard]] uint32_t replans() const { return replans_; }
  // The largest n_batch that plan() ever has.
  [[nodiscard]] int32_t largest_batch() const { return options_.n_batch; }

  // --- passes, one at a time
  // ----------------------------------------------------------------------
  [[nodiscard]] Executor& executor() const { return *executor_; }
  // In place of the CPU's, before the first pass.
  void compute_with(std::unique_ptr<Executor> executor);
  [[nodiscard]] kv::KvPool& pool_of_sequences() { return sequences_; }
  // Number of the pass that begins.
  [[nodiscard]] uint64_t begin_pass();
  void end_pass() { pass_under_way_ = false; }
  [[nodiscard]] bool pass_under_way() const { return pass_under_way_; }
  [[nodiscard]] uint64_t last_pass() const { return last_pass_; }
  // Milliseconds since it began; 0 where it waited for what stays, which says nothing of others.
  [[nodiscard]] double pass_ms() const;
  // What passes of few tokens have cost under this budget, waiting for weights included.
  [[nodiscard]] draft::BatchLatency& costs() { return costs_; }
  // What is known of guesses for it, or of the ones that it makes for another model.
  [[nodiscard]] draft::DraftState& draft_state() { return draft_state_; }
  // What guesses by a head of the model's own; null where it was not asked for.
  [[nodiscard]] NextnHead* nextn() { return nextn_.get(); }
  [[nodiscard]] HeadCounts& head_counts() { return head_counts_; }
  [[nodiscard]] ExitCounts& exit_counts() { return exit_counts_; }
  [[nodiscard]] ExitWatch& exit_watch() { return exit_watch_; }
  [[nodiscard]] const ComputeBuffer& working() const { return working_; }
  [[nodiscard]] ComputeBuffer& working() { return working_; }
  [[nodiscard]] int64_t width(model::Buf b) const { return program_.width[static_cast<size_t>(b)]; }

  // --- weights
  // ------------------------------------------------------------------------------------
  [[nodiscard]] int32_t item_of_mat(int32_t mat) const {
    return plan_.mat_item[static_cast<size_t>(mat)];
  }
  // A small tensor as f32, null while it has not arrived.
  [[nodiscard]] const float* vec(int32_t index) const;
  // Packs pinned weights and converts small tensors whose bytes have arrived.
  void pack_loaded();
  [[nodiscard]] FiniteCheck& finite_check() { return weight_check_; }
  // After a look at weights: what has been found becomes failure().
  void settle_check();
  // The rows [first, last] of a tensor hold what is not a number.
  void refuse_weights(const std::string& tensor, int64_t first, int64_t last);
  // Takes over fills and asks for more; true when something arrived.
  bool poll();
  // Has the threads serve requests beside the driver, while there is nothing to compute: a device
  // gives more to several readers. True when they did.
  bool help_reading();

 private:
  Engine() = default;
  void map_items();
  [[nodiscard]] Status adopt(MemoryPlan plan);
  [[nodiscard]] Status replan(uint64_t budget, const AdapterNeeds& adapters);
  void identify();
  void settle_unit(uint32_t unit, int thread);

  model::Program program_;
  MemoryPlan plan_;
  int32_t left_layers_ = 0;  // to another device
  EngineOptions options_;    // as planned at first
  AdapterSet adapters_;
  uint64_t model_identity_ = 0, identity_ = 0;
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
  uint32_t pins_absent_ = 0;  // when it began
  draft::BatchLatency costs_;
  draft::DraftState draft_state_;
  HeadCounts head_counts_;
  ExitCounts exit_counts_;
  ExitWatch exit_watch_;
  Status failure_;
};

}  // namespace sluice::session
