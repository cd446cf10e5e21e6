// Decides from the header alone where every byte of the budget goes, before anything is allocated
// or downloaded. `sluice info` and Engine.inspect print this plan, and opening a model follows it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kv/kv_cache.h"
#include "kv/kv_type.h"
#include "model/program.h"
#include "residency/residency.h"
#include "session/adapter_set.h"
#include "session/approximation.h"
#include "session/compute_buffer.h"
#include "session/kv_plan.h"

namespace sluice::session {

// Reads parts of the model's files for the engine's threads (direct reads).
class RangeReader {
 public:
  virtual ~RangeReader() = default;
  // Fills `out`; thread-safe. False on failure.
  [[nodiscard]] virtual bool read(uint32_t file, uint64_t offset, std::span<uint8_t> out) = 0;
};

// Why a context is as long as it is.
enum class ContextFrom : uint8_t {
  kOption,   // the caller chose it
  kModel,    // the longest that the model was trained with
  kDefault,  // the model could have more than kDefaultContext
  kBudget,   // a longer one would leave too little memory for weights
};
[[nodiscard]] const char* context_from_name(ContextFrom from);
[[nodiscard]] ContextFrom parse_context_from(std::string_view name);  // kOption, if unknown

struct EngineOptions {
  uint64_t memory_budget = 0;  // bytes; 0: what the model wants
  uint64_t base_bytes = 0;     // part of the budget already in use (wasm: stack, constants, header)
  uint64_t page_bytes = 1;     // budgets are rounded to whole pages
  // Bytes of a budget to leave free; must grow slower than the budget. Null: none.
  uint64_t (*spare)(uint64_t budget) = nullptr;
  uint64_t reserve = 0;  // bytes to leave free besides
  int32_t n_ctx = 0;     // positions; 0: the model's own, at most 4096 and a quarter of the budget
  ContextFrom context_from = ContextFrom::kOption;  // why n_ctx, if it is not 0
  int32_t n_batch = 0;    // tokens per prefill batch; 0: automatic; non-causal models: the context
  int32_t min_batch = 1;  // smallest n_batch, however small the budget
  // No smaller budget works, whatever the plan needs: preparing the model took so much.
  uint64_t min_budget = 0;
  int32_t n_threads = 0;  // 0: automatic
  // If smaller than n_threads and not 0: how many a budget gets that is too small for n_threads.
  int32_t min_threads = 0;
  ThreadPool* pool = nullptr;     // of n_threads threads, outlives the engine; null: its own
  bool borrows_threads = false;   // the pool belongs to another engine, whose plan counts it
  int32_t logits_rows = 1;        // rows of logits kept by a pass that wants them all: at least
                                  // so many tokens are one batch, if n_batch and policy allow
  int32_t n_sessions = 1;         // sequences in memory at once
  int32_t n_checkpoints = -1;     // copies of recurrent states for rewinding; -1: automatic
  const char* kernels = "";       // kernel table by name; "": the best
  RangeReader* reader = nullptr;  // borrowed, outlives the engine; null: no direct reads
  residency::DirectReads direct_reads = residency::DirectReads::kNone;
  // KV cache types. auto: the most precise that take at most a quarter of the budget with the
  // context that a model has without a budget. If none do, or these do not fit, the smaller ones.
  kv::KvTypes kv;
  // With a policy that evicts: if `n_ctx` exceeds the cache's capacity, it limits the length of a
  // sequence, which is otherwise practically unlimited. Without a capacity, n_ctx is the capacity.
  kv::KvPolicy kv_policy;
  bool structured_output = false;             // reserve memory for constrained decoding
  std::span<const adapter::Source> adapters;  // borrowed, read while the engine is opened
  int32_t draft_max = 0;  // draft tokens verified by one pass; 0: none, -1: automatic
  bool nextn = false;     // use the multi-token prediction (MTP) head, model/nextn.h
  // Sessions that a batcher may compute together, each with a generation running. n_sessions is
  // raised to at least this.
  int32_t parallel = 1;
  ApproximateOptions approximate;
};

inline constexpr int32_t kMaxBatch = 256;
inline constexpr int32_t kDefaultContext = 4096;
inline constexpr int32_t kMinContext = 128;  // automatic contexts are reduced by this, and to this
inline constexpr int32_t kDefaultWholeContext = 2048;  // of encoders and encoder-decoders
inline constexpr int32_t kMaxSessions = 64;
inline constexpr int32_t kDefaultDraft = 15;  // draft tokens, if the budget has room for the logits
inline constexpr int32_t kCheckpointEvery = 64;  // positions between copies of recurrent states
inline constexpr int32_t kMaxCheckpoints = 256;

// One part of the plan, in bytes.
struct MemoryPart {
  const char* name;
  uint64_t bytes;
};
inline constexpr size_t kMemoryParts = 13;

struct MemoryPlan {
  MemoryPlan();  // these are not inline, which would enlarge the wasm binaries
  MemoryPlan(const MemoryPlan&);
  MemoryPlan(MemoryPlan&&) noexcept;
  MemoryPlan& operator=(const MemoryPlan&);
  MemoryPlan& operator=(MemoryPlan&&) noexcept;
  ~MemoryPlan();

  int32_t n_ctx = 0, n_batch = 0, n_threads = 0, logits_rows = 1, n_sessions = 1;
  int32_t parallel = 1;
  ContextFrom context_from = ContextFrom::kOption;
  int32_t own_threads = 0;  // threads started besides the caller's
  // Draft tokens one pass may verify; tokens of a pass that fits one batch under any budget.
  int32_t draft_max = 0, draft_batch = 1;
  uint64_t budget = 0;  // 0: unlimited
  uint64_t base = 0;    // in use before planning; part of `other`
  uint64_t tokenizer = 0;
  uint64_t vectors = 0;          // norm weights, biases
  uint64_t kv = 0;               // all sequences
  uint64_t activations = 0;      // buffers, logits, RoPE tables
  uint64_t scratch = 0;          // all threads
  uint64_t request = 0;          // state of generations: sampler, tokens, text
  uint64_t grammar = 0;          // sorted vocabulary, grammars and their states
  uint64_t adapters = 0;         // including what loading them takes
  uint64_t nextn = 0;            // KV cache and states of the MTP head, not its weights
  uint64_t adapter_scratch = 0;  // part of each thread's scratch
  uint64_t reserve = 0;          // left free, never allocated
  uint64_t other = 0;            // stacks, tensor directory, queue, `base`
  // The smallest budget that these options work with, for this context if it was automatic.
  uint64_t minimum = 0;
  bool endless = false;  // the policy evicts, and n_ctx grows with the budget
  // Rows cached of each table that is read by rows; part of `activations`.
  std::array<uint64_t, model::kMaxTables> cached_rows{};
  kv::KvTypes kv_types;
  KvPlan kv_plan;
  kv::KvShape kv_shape;
  residency::Plan weights;
  // Index in `weights` of the matrix that holds each of the program's mats and vecs.
  std::vector<int32_t> mat_item, vec_item;

  [[nodiscard]] ComputeBufferShape working() const {
    return {kv_plan.positions, n_batch,          n_threads,   logits_rows,
            adapter_scratch,   kv_plan.evicts(), cached_rows, kv_plan.eviction.block};
  }
  // Every byte of the plan, once. Reports, the C API and docs/memory.md use these names.
  [[nodiscard]] std::array<MemoryPart, kMemoryParts> parts() const;
  // The sum of the parts.
  [[nodiscard]] uint64_t total() const;
  // The sum of all parts but the weights.
  [[nodiscard]] uint64_t fixed() const {
    return total() - weights.pinned_bytes - weights.ring_bytes();
  }
};

struct Inspection;  // engine.h

// Which budget some options need.
class BudgetRule {
 public:
  // The smallest budget that works with these options; 0: none does.
  [[nodiscard]] virtual uint64_t smallest(const EngineOptions& options) const = 0;

 protected:
  ~BudgetRule() = default;
};

// Plans one model for several options; the weights are laid out once. Every budget or context that
// is called the smallest or the longest is found here, by what accepts or refuses it. Borrows its
// arguments.
class Planner final : public BudgetRule {
 public:
  Planner(const model::Program& program, const kernels::Table& table, uint64_t tokenizer_bytes,
          const AdapterNeeds& adapters);
  explicit Planner(const Inspection& found);
  // Errors: kBudgetTooSmall, with the smallest budget that works; kUnsupportedArchitecture;
  // kInvalidArgument (also for KV cache types that the model does not support, naming them).
  [[nodiscard]] Result<MemoryPlan> plan(const EngineOptions& options) const;
  // Without weights: the plan whose `minimum` is the smallest budget with which plan() succeeds.
  // Errors: plan()'s others.
  [[nodiscard]] Status least(EngineOptions options, MemoryPlan& plan) const;
  [[nodiscard]] uint64_t smallest(const EngineOptions& options) const override;

 private:
  using Types = std::array<kv::KvTypes, 4>;
  // The types to try, and the index of the first. Returns their number.
  size_t types(EngineOptions options, Types* out, size_t* best) const;
  // With these types and this context.
  [[nodiscard]] Status least_of(const EngineOptions& options, int32_t n_ctx,
                                MemoryPlan& plan) const;
  // The plan, or least()'s if its `minimum` exceeds the budget.
  [[nodiscard]] Status search(const EngineOptions& options, MemoryPlan& plan) const;
  void complete(const EngineOptions& options, MemoryPlan& plan) const;
  uint64_t size(const EngineOptions& options, MemoryPlan& plan) const;
  [[nodiscard]] bool fits(const EngineOptions& options, MemoryPlan& plan) const;

  const model::Program& program_;
  const kernels::Table& table_;
  uint64_t tokenizer_bytes_ = 0;
  AdapterNeeds adapters_;
  std::vector<residency::MatrixSpec> specs_;  // in the order of a forward pass
  std::vector<int32_t> mat_item_, vec_item_;
  uint64_t ring_ = 0;       // smallest stream buffer
  uint64_t max_units_ = 0;  // records of the units that it needs
};

// Planner's plan(), once.
[[nodiscard]] Result<MemoryPlan> plan_memory(const model::Program& program,
                                             const kernels::Table& table, uint64_t tokenizer_bytes,
                                             const EngineOptions& options,
                                             const AdapterNeeds& adapters = {});

// The smallest budget, in whole pages, that has `bytes` besides EngineOptions::spare.
[[nodiscard]] uint64_t smallest_with_spare(uint64_t bytes, const EngineOptions& options);

// Bytes of all sequences' KV caches and states in this plan, if they had these types; 0 if the
// model does not support them.
[[nodiscard]] uint64_t kv_bytes(const model::Program& program, const MemoryPlan& plan,
                                const kv::KvTypes& types);

// The longest n_ctx that these options work with in their budget, whatever their own; 0: none.
// `room`: the KV cache of a plan with these options.
[[nodiscard]] int64_t longest_context(const model::Program& program, const KvPlan& room,
                                      EngineOptions options, const BudgetRule& rule);

}  // namespace sluice::session
