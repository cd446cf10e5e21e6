// What a caller chooses when a model is opened, and the limits and defaults of these choices. The
// plan (memory_plan.h) follows from them and the header.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "base/thread_pool.h"
#include "kv/kv_policy.h"
#include "kv/kv_type.h"
#include "residency/residency.h"
#include "session/adapter_set.h"
#include "session/approximation.h"

namespace sluice::session {

// Reads parts of the model's files for the engine's threads (direct reads).
class RangeReader {
 public:
  virtual ~RangeReader() = default;
  // Fills `out`; thread-safe. False on failure.
  [[nodiscard]] virtual bool read(uint32_t file, uint64_t offset, std::span<uint8_t> out) = 0;
  // Hint that these bytes will be read soon. Returns at once. Native builds only.
#if defined(__wasm__)
  void will_need(uint32_t, uint64_t, uint64_t) {}
#else
  virtual void will_need(uint32_t file, uint64_t offset, uint64_t bytes) {
    static_cast<void>(file), static_cast<void>(offset), static_cast<void>(bytes);
  }
#endif
  // Nanoseconds that reads spent decompressing, over all threads.
  [[nodiscard]] virtual uint64_t decompress_ns() const {
    return 0;
  }
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
  // First positions of the KV cache that have memory; 0: none, the GPU has it.
  int32_t kv_rows = std::numeric_limits<int32_t>::max();
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
  bool time_breakdown = false;  // measure where the time of forward passes goes
};

inline constexpr int32_t kMaxBatch = 256;
inline constexpr int32_t kDefaultContext = 4096;
inline constexpr int32_t kMinContext = 128;  // automatic contexts are reduced by this, and to this
inline constexpr int32_t kDefaultWholeContext = 2048;  // of encoders and encoder-decoders
inline constexpr int32_t kMaxSessions = 64;
inline constexpr int32_t kDefaultDraft = 15;  // draft tokens, if the budget has room for the logits
inline constexpr int32_t kCheckpointEvery = 64;  // positions between copies of recurrent states
inline constexpr int32_t kMaxCheckpoints = 256;

}  // namespace sluice::session
