// A loaded model: program, tokenizer, weights under the memory budget, and the compute buffer. The
// engine does no I/O; a driver serves the queue of residency().requests(). Its sessions (sequences)
// compute one at a time, or together in a batcher (batcher.h).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "model/program.h"
#include "residency/residency.h"
#include "session/compute_buffer.h"
#include "session/replanner.h"
#include "session/session_context.h"
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
  [[nodiscard]] Weights& weights() { return weights_; }
  [[nodiscard]] residency::Residency& residency() { return weights_.residency(); }
  [[nodiscard]] const residency::Residency& residency() const { return weights_.residency(); }
  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  // For executors, sessions and what they consist of.
  [[nodiscard]] const SessionContext& context() const { return *context_; }

  [[nodiscard]] Fingerprint fingerprint() const { return context_->fingerprint(); }
  // Adds the weights of the model, or of its projector, to the fingerprint. Until then they equal
  // any. `hash` must be complete.
  void identify_weights(const WeightHash& hash) { hash.set(&fingerprint_); }

  // Changes the plan.
  [[nodiscard]] Replanner& replanner() { return *replanner_; }
  // Why no pass can be computed any more: weights that are not finite (kBadWeights, naming the
  // tensor), or a change of the plan that failed.
  [[nodiscard]] const Status& failure() const { return weights_.failure(); }

  [[nodiscard]] const AdapterSet& adapters() const { return adapters_; }

  // --- forward passes, one at a time ------------------------------------------------------------
  // Replaces the CPU executor; call before the first pass.
  void compute_with(std::unique_ptr<Executor> executor);
  [[nodiscard]] Passes& passes() { return passes_; }
  // The multi-token prediction (MTP) head; null if it was not requested.
  [[nodiscard]] NextnHead* nextn() { return nextn_.get(); }
  [[nodiscard]] ApproximateState& approximate() { return approximate_; }
  [[nodiscard]] const ComputeBuffer& working() const { return working_; }
  [[nodiscard]] ComputeBuffer& working() { return working_; }

 private:
  Engine() = default;
  model::Program program_;
  MemoryPlan plan_;
  AdapterSet adapters_;
  Fingerprint fingerprint_;  // without the adapters
  const kernels::Table* table_ = nullptr;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::optional<GrammarVocabulary> vocabulary_;
  std::unique_ptr<ThreadPool> own_pool_;
  ThreadPool* pool_ = nullptr;
  ComputeBuffer working_;
  Weights weights_{program_, plan_, working_};
  Passes passes_{weights_};
  std::optional<SessionContext> context_;
  std::optional<Replanner> replanner_;
  kv::KvPool sequences_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<NextnHead> nextn_;
  draft::BatchLatency costs_;
  draft::DraftState draft_state_;
  Approximations modes_;
  ApproximateState approximate_;
};

}  // namespace sluice::session
