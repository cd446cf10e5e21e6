// Runs batches on a GPU that JavaScript drives (web/gpu). This side describes each forward pass in
// a GpuPass and waits until JavaScript has written the logits to memory, like for a read request.
// The KV cache in memory remains the authoritative one; the GPU has a copy for each session. New
// rows are copied back with the logits, and missing ones are uploaded before a pass. Recurrent
// states stay on the GPU until memory needs them: before the CPU computes, and when a request ends.
// Sessions, saved states and rewinding therefore need no GPU code. If the GPU device is lost, the
// CPU computes the same batch from the same position. It first computes again what the states lack
// since the last checkpoint, which memory always has. The CPU also chooses the heavy hitters
// that stay when a block of the KV cache is evicted: they are uploaded, and the queries that it
// measures attention with come back. If only the first layers are on the GPU,
// it returns their residual stream instead of logits, and the CPU continues from there.
// If the KV cache does not fit in memory (kv::KvShape::on_gpu), the GPU has the only one. When the
// device is lost, memory is planned for as many positions as fit, and the CPU computes each
// sequence again from its tokens before it continues.
#pragma once

#include <string>
#include <vector>

#include "session/cpu_executor.h"
#include "session/replanner.h"

namespace sluice::gpu {

// A pointer as JavaScript sees it: an offset into the shared wasm memory.
template <typename T>
[[nodiscard]] uint32_t address(const T* place) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place));
}

// A forward pass as both sides see it. web/gpu/program.ts declares the same layout.
struct GpuPass {
  enum State : uint32_t { kNone = 0, kWanted = 1, kDone = 2 };
  uint32_t state = kNone;
  uint32_t lost = 0;    // set by JavaScript: the device is lost, and the CPU computes from now on
  uint32_t serial = 0;  // number of the pass; results of an earlier one are dropped
  int32_t n = 0, first = 0;           // tokens of the batch, and the first one's position
  int32_t first_row = 0, n_rows = 0;  // rows whose logits are requested
  int32_t held = 0;                   // leading positions that the GPU's copy of the KV cache has
  int32_t layer = -1;                 // the layer being computed, set by JavaScript
  uint32_t vectors = 0;               // address of [vecs] addresses of f32
  // Address of [layers][4] addresses: the first head's keys and values (null: the GPU has the only
  // ones), the recurrent state before the batch, and the destination of the state after it.
  uint32_t rows = 0;
  uint32_t on_gpu = 0;  // passes that the GPU has computed
  uint32_t least = 1;   // tokens of the smallest batch to run on the GPU
  // Why batches ran on the CPU instead, as bits.
  enum CpuFallback : uint32_t { kTexts = 1, kAdapters = 2, kPictures = 4 };
  uint32_t cpu_fallback = 0;
  uint32_t before = 0;          // id of the recurrent states before the batch (GpuState)
  uint32_t due = 0, n_due = 0;  // address and number of the Sequence::Checkpoints in the batch
  // Addresses of the token embeddings, of the logits, and of the addresses of the RoPE tables and
  // of those that rotate queries back (ComputeBuffer::turn_table). A new memory plan changes them.
  uint32_t x = 0, logits = 0, ropes = 0;
  uint32_t cut = 0;  // the first operation that runs on the CPU; 0: all run on the GPU
  // How many steps JavaScript wants in a queue, at most session::kMaxQueue; 0: it queues none.
  uint32_t max_queue = 0;
  // A queue (session/step_queue.h): `steps` > 0, the first of which computes `token`. JavaScript
  // writes the token after each step, [steps] i32 at `chosen`, and how many there are.
  int32_t steps = 0, token = 0;
  uint32_t chosen = 0, n_chosen = 0;
  uint32_t stops = 0, n_stops = 0;  // address and number of StepQueue::stops
  uint32_t sampling = 0;            // address of StepQueue::sampling
  // Address and number of the tokens in the window of the penalties.
  uint32_t recent = 0, n_recent = 0;
  // A batch of a picture: address of its rows (session/media.h) and values from row to row, whose
  // first n_embd are in `x` already. 0: the batch is text.
  uint32_t media = 0, media_width = 0;
  // Whether the picture's tokens see each other in both directions, and in which layers.
  enum NonCausal : uint32_t { kNoLayer = 0, kWindows = 1, kAllLayers = 2 };
  uint32_t non_causal = kNoLayer;
  uint32_t n_deepstack = 0;  // layers behind which further values of these rows are added
  // Address of [tables] addresses of the batch's rows, as they are in the file. The first is the
  // token embedding, whose rows are in `x`.
  uint32_t table_rows = 0;
  uint32_t slot = 0;       // which of JavaScript's KV caches is the sequence's
  uint32_t max_lanes = 1;  // how many sequences JavaScript computes in one batch
  // A batch of several sequences: address and number of their GpuPass. Of these only `n`, `first`,
  // `first_row`, `n_rows`, `held`, `rows` and `slot` are set, and `lost` when one is dropped.
  uint32_t lanes = 0, n_lanes = 0;
  // Embeddings: the operation that is behind those of the GPU, which leaves a row for each token of
  // the batch in Buf::kH, at `logits`; the CPU pools them. 0: the batch computes logits.
  uint32_t hidden = 0;
  // Address and number of BatchSpec::ends: inputs that begin at position 0 each.
  uint32_t ends = 0, n_ends = 0;
  // The LoRA adapters of the batch, 0 for none, and those that JavaScript cannot apply: the CPU
  // computes their batches. Addresses of AdapterSet::terms() and firsts().
  uint32_t adapters = 0, refused = 0, terms = 0, first_terms = 0;
  int32_t source = 0;  // leading positions of an encoder-decoder model that are its encoder's
  // Address of a StateFetch. Not 0: memory gets these states, and no batch is computed.
  uint32_t fetch = 0;
};

// Recurrent states that the GPU has: those of position `at`, made by the batch with serial `id`.
// 0: memory alone has them.
struct GpuState {
  int32_t at = -1;
  uint32_t id = 0;
  uint32_t away = 0;  // whether memory lacks them; JavaScript clears it
};

// What memory gets from JavaScript. web/gpu/recurrent-states.ts reads it.
struct StateFetch {
  uint32_t slot = 0, id = 0;  // GpuPass::slot, GpuState::id
  uint32_t places = 0;        // address of [layers] addresses
  uint32_t away = 0;          // address of GpuState::away
};

class GpuExecutor final : public session::Executor {
 public:
  GpuExecutor(const session::ExecutionContext& context, session::Replanner& replanner);

  // The program, the plan and addresses that web/gpu needs, as JSON.
  [[nodiscard]] std::string describe() const;

  void begin(session::Sequence& sequence, int32_t n, const session::BatchSpec& spec) override;
  [[nodiscard]] session::Step step(int32_t* max_ops) override;
  [[nodiscard]] int32_t max_parts() const override;
  void drop(const session::Sequence& sequence) override;
  void abandon() override;
  [[nodiscard]] int32_t max_queue() const override;
  [[nodiscard]] std::span<const session::Token> chosen() const override {
    return {chosen_.data(), spec_.queue != nullptr ? pass_.n_chosen : 0};
  }
  [[nodiscard]] const session::Sequence* sequence() const override { return cpu_.sequence(); }
  [[nodiscard]] const Status& failure() const override {
    return failure_.ok() ? cpu_.failure() : failure_;
  }
  [[nodiscard]] std::span<float> logits(int32_t row) const override { return cpu_.logits(row); }
  [[nodiscard]] std::span<float> embedding(int32_t i) const override { return cpu_.embedding(i); }
  [[nodiscard]] int32_t layer() const override;
  void observe(session::Observer observer) override;
  void watch_products(session::ProductWatch watch) override;
  // Address of the StateFetch that memory needs before the sequence's states are read; 0: none.
  // When the GPU is lost, a sequence whose states it had ends at its last checkpoint.
  [[nodiscard]] uint32_t missing_states(const session::Sequence& of);

 private:
  // Who computes the batch. The CPU looks up the token embeddings and fills the RoPE tables even
  // for the GPU.
  enum class Where : uint8_t { kCpu, kEmbedding, kGpu, kFetch };
  [[nodiscard]] uint32_t adapters() const;
  [[nodiscard]] bool refused() const;
  [[nodiscard]] bool for_gpu(int32_t n, const session::BatchSpec& spec);
  [[nodiscard]] bool at_begin() const;
  void to_single_step();
  // The leading positions of a sequence that one of JavaScript's KV caches has. After a loss of the
  // only one: that the engine's has.
  struct Copy {
    session::Sequence* of = nullptr;
    uint32_t restores = 0;
    int32_t held = 0;
    GpuState now, undo;  // of its position, and before the last batch
    StateFetch fetch;
    std::vector<const void*> places;  // [layers]
  };
  [[nodiscard]] Copy& copy_of(session::Sequence& sequence);
  [[nodiscard]] GpuState* state_of(session::Sequence& sequence);
  [[nodiscard]] uint32_t describe_fetch(session::Sequence& sequence, GpuState& state, bool after);
  [[nodiscard]] bool fetch_states(Where next);
  [[nodiscard]] session::Step fetched();
  [[nodiscard]] session::Step computed(int32_t* max_ops);
  void describe(const session::BatchPart& part, size_t lane, GpuPass& pass);
  void hold(int32_t n);
  [[nodiscard]] bool vectors_ready();
  [[nodiscard]] session::Step on_cpu(int32_t* max_ops);
  [[nodiscard]] bool settle_reads();
  [[nodiscard]] int32_t kv_needed() const;
  [[nodiscard]] session::Step take_kv_back();
  [[nodiscard]] session::Step no_memory();
  [[nodiscard]] bool recompute();
  void recompute_batch();
  [[nodiscard]] bool take_layers_back();
  void hand_over();

  const session::ExecutionContext& cx_;
  session::Replanner& replanner_;
  session::CpuExecutor cpu_;
  session::WeightStream feed_;
  GpuPass pass_;
  Where where_ = Where::kCpu, next_ = Where::kCpu;
  bool watched_ = false, taken_back_ = false;
  Status failure_;
  // Positions for which memory was planned after a loss; 0: the plan is that of the load.
  int32_t kv_rows_ = 0;
  // A sequence of the batch that the CPU computes again, up to this position, and tokens of the
  // batch that does so.
  session::Sequence* again_ = nullptr;
  int32_t again_to_ = 0, again_n_ = 0;
  bool media_mats_ = false;  // rows of pictures have matrices of their own
  session::BatchSpec spec_;
  int32_t n_ = 0;
  std::vector<Copy> copies_;               // by GpuPass::slot
  std::vector<session::BatchPart> parts_;  // of the batch, at least one
  std::vector<GpuPass> lanes_;             // of these
  session::Sequence* held_of_ = nullptr;   // the batch's (first) sequence
  GpuState made_;                          // by a batch whose states memory gets at once
  // Weights::replans() when vectors_ was filled.
  uint32_t replans_ = 0;
  std::vector<const float*> vectors_;
  std::vector<const void*> rows_, ropes_, table_rows_;
  std::vector<session::Token> chosen_;
};

}  // namespace sluice::gpu
