// Where every byte of the budget goes, decided from the header alone (planner.h), before anything
// is allocated or downloaded. `sluice info` and Engine.inspect print this plan, and opening a model
// follows it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kv/kv_cache.h"
#include "model/program.h"
#include "session/compute_buffer.h"
#include "session/engine_options.h"
#include "session/kv_plan.h"

namespace sluice::session {

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

  struct Budget {
    uint64_t bytes = 0;  // 0: unlimited
    // The smallest that these options work with, for this context if it was automatic.
    uint64_t minimum = 0;
    uint64_t base = 0;  // in use before planning; part of Bytes::other
  } budget;
  struct Context {
    int32_t n_ctx = 0;
    ContextFrom from = ContextFrom::kOption;
    bool endless = false;  // the policy evicts, and n_ctx grows with the budget
  } context;
  struct Sessions {
    int32_t n_sessions = 1;
    int32_t parallel = 1;
  } sessions;
  struct Batch {
    int32_t n_batch = 0;
    int32_t logits_rows = 1;
    int32_t draft_max = 0;    // draft tokens that one pass may verify
    int32_t draft_batch = 1;  // tokens of a pass that fits one batch under any budget
  } batch;
  struct Threads {
    int32_t n_threads = 0;
    int32_t own = 0;  // started besides the caller's
  } threads;
  // Everything but weights, which have a plan of their own.
  struct Bytes {
    uint64_t tokenizer = 0;
    uint64_t small_tensors = 0;  // norm weights, biases
    uint64_t kv = 0;             // all sequences
    uint64_t activations = 0;    // buffers, logits, RoPE tables
    uint64_t scratch = 0;        // all threads
    uint64_t generation = 0;     // state of generations: sampler, tokens, text
    uint64_t grammar = 0;        // sorted vocabulary, grammars and their states
    uint64_t adapters = 0;       // including what loading them takes
    uint64_t nextn = 0;          // KV cache and states of the MTP head, not its weights
    uint64_t reserve = 0;        // left free, never allocated
    uint64_t other = 0;          // stacks, tensor directory, queue, Budget::base
  } bytes;
  struct Buffers {
    uint64_t adapter_scratch = 0;  // part of each thread's scratch
    // Rows cached of each table that is read by rows; part of Bytes::activations.
    std::array<uint64_t, model::kMaxTables> cached_rows{};
  } buffers;
  struct Kv {
    kv::KvTypes types;
    KvPlan layout;
    kv::KvShape shape;
  } kv;
  residency::Plan weights;
  // Index in `weights` of the matrix that holds each of the program's mats and vecs.
  struct Items {
    std::vector<int32_t> mat, vec;
  } items;

  [[nodiscard]] ComputeBufferShape working() const {
    return {kv.layout.positions, batch.n_batch,           threads.n_threads,
            batch.logits_rows,   buffers.adapter_scratch, kv.layout.evicts(),
            buffers.cached_rows, kv.layout.eviction.block};
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

}  // namespace sluice::session
