// Where every byte of the budget goes, decided from the header alone, before anything is allocated
// or downloaded. The same plan is what `sluice info` and Engine.inspect print and what open()
// obeys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kv/kv_cache.h"
#include "kv/kv_type.h"
#include "model/program.h"
#include "residency/residency.h"
#include "session/adapter_set.h"
#include "session/compute_buffer.h"
#include "session/kv_plan.h"

namespace sluice::session {

// Reads parts of the model's files for the engine's threads.
class RangeReader {
 public:
  virtual ~RangeReader() = default;
  // Fills `out`, from any thread, several at a time; false when that was not possible.
  [[nodiscard]] virtual bool read(uint32_t file, uint64_t offset, std::span<uint8_t> out) = 0;
};

struct EngineOptions {
  uint64_t memory_budget = 0;  // bytes; 0: what the model wants
  uint64_t base_bytes = 0;     // of the budget, already taken (wasm: stack, constants, header)
  uint64_t page_bytes = 1;     // budgets are whole pages
  // Bytes of a budget to leave free; grows slower than the budget. Null: none.
  uint64_t (*spare)(uint64_t budget) = nullptr;
  int32_t n_ctx = 0;      // positions; 0: the model's own, at most 4096 and a quarter of the budget
  int32_t n_batch = 0;    // tokens of a prefill pass; 0: chosen; the context where texts are whole
  int32_t min_batch = 1;  // not fewer, however small the budget
  int32_t n_threads = 0;  // 0: chosen
  ThreadPool* pool = nullptr;     // with so many threads, outlives the engine; null: one of its own
  bool borrows_threads = false;   // the pool will be another engine's, whose plan counts it
  int32_t logits_rows = 1;        // rows of logits kept by a pass that wants them all
  int32_t n_sessions = 1;         // sequences that are in memory at once
  int32_t n_checkpoints = -1;     // copies of recurrent states for going back; -1: chosen
  const char* kernels = "";       // table by name; "": the best
  RangeReader* reader = nullptr;  // of the caller, outlives the engine; null: no direct reads
  residency::DirectReads direct_reads = residency::DirectReads::kNone;
  kv::KvTypes kv;  // of keys and values; auto: the best that take at most a quarter of the budget,
                   // as a context is chosen; where none do, the smallest
  // With a cache that evicts, `n_ctx` is the length of a text where it is greater than the cache's
  // size, and else, where that is not given, the size; a text is then as good as endless.
  kv::KvPolicy kv_policy;
  bool structured_output = false;             // room for generations that are bound to a grammar
  std::span<const adapter::Source> adapters;  // of the caller, read while the engine is opened
  int32_t draft_max = 0;  // tokens guessed ahead that one pass checks; 0: none, -1: chosen
  bool nextn = false;     // room for a head of the model's own that guesses (model/nextn.h)
  // Sessions whose passes may be computed together, each with an answer under way: as many
  // sequences, at least.
  int32_t parallel = 1;
  // From 1, the whole model, to 0: the least important layers are left out
  // (model/layer_skipping.h).
  double skip_layers_ratio = 0;
  std::span<const int32_t> skip;  // layers that are left out; of the caller, read while opening
  model::HeadPolicy head;         // how many of the output head's products a token costs
  model::ExitPolicy exits;        // whether tokens leave before the last layer
};

inline constexpr int32_t kMaxBatch = 256;
inline constexpr int32_t kDefaultContext = 4096;
inline constexpr int32_t kMinContext = 128;            // that is chosen of itself
inline constexpr int32_t kDefaultWholeContext = 2048;  // of models that read a text whole
inline constexpr int32_t kMaxSessions = 64;
inline constexpr int32_t kDefaultDraft = 15;  // guesses, while their logits take little of a budget
inline constexpr int32_t kCheckpointEvery = 64;  // positions between copies of recurrent states
inline constexpr int32_t kMaxCheckpoints = 256;

struct MemoryPlan {
  int32_t n_ctx = 0, n_batch = 0, n_threads = 0, logits_rows = 1, n_sessions = 1;
  int32_t parallel = 1;
  int32_t own_threads = 0;  // that it starts, beside the caller's
  // Guesses that one pass may check, and the tokens of a pass that is one batch under any budget.
  int32_t draft_max = 0, draft_batch = 1;
  uint64_t budget = 0;  // 0: unlimited
  uint64_t base = 0;    // taken or left free, part of `other`
  uint64_t tokenizer = 0;
  uint64_t vectors = 0;          // norm weights, biases
  uint64_t kv = 0;               // of all sessions
  uint64_t activations = 0;      // buffers, logits, RoPE tables
  uint64_t scratch = 0;          // all threads
  uint64_t request = 0;          // what generations hold: sampler, tokens, pieces
  uint64_t grammar = 0;          // the vocabulary's bytes sorted, each grammar and its states
  uint64_t adapters = 0;         // and what reading them takes
  uint64_t nextn = 0;            // what the head that guesses has read, its weights apart
  uint64_t adapter_scratch = 0;  // part of each thread's
  uint64_t other = 0;            // stacks, directory, queue
  uint64_t minimum = 0;          // smallest budget for this context
  // Rows of each table that stay once they were read, part of `activations`.
  std::array<uint64_t, model::kMaxTables> cached_rows{};
  kv::KvTypes kv_types;
  KvPlan kv_plan;
  kv::KvShape kv_shape;
  residency::Plan weights;
  // Matrix of `weights` that holds each of the program's mats and vecs.
  std::vector<int32_t> mat_item, vec_item;

  [[nodiscard]] ComputeBufferShape working() const {
    return {kv_plan.positions, n_batch,          n_threads,   logits_rows,
            adapter_scratch,   kv_plan.evicts(), cached_rows, kv_plan.eviction.block};
  }
  [[nodiscard]] uint64_t fixed() const {
    return tokenizer + vectors + kv + activations + scratch + request + grammar + adapters + nextn +
           other;
  }
  [[nodiscard]] uint64_t total() const {
    return fixed() + weights.pinned_bytes + weights.ring_bytes();
  }
};

// Errors: kBudgetTooSmall naming the smallest that works, kUnsupportedType, kInvalidArgument (also
// for types of keys and values that the model cannot have, named).
[[nodiscard]] Result<MemoryPlan> plan_memory(const model::Program& program,
                                             const kernels::Table& table, uint64_t tokenizer_bytes,
                                             const EngineOptions& options,
                                             const AdapterNeeds& adapters = {});

// Bytes of all sequences' keys, values and states in this plan, were they of those types; 0 where
// the model cannot have them.
[[nodiscard]] uint64_t kv_bytes(const model::Program& program, const MemoryPlan& plan,
                                const kv::KvTypes& types);
// The longest context for which they would fit, all else being the least that works; without a
// budget, in the bytes that the plan's take.
[[nodiscard]] int64_t kv_capacity(const model::Program& program, const MemoryPlan& plan,
                                  const kv::KvTypes& types);

}  // namespace sluice::session
