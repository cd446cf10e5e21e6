// Batches on a GPU, which JavaScript drives (web/gpu): this side says what a pass is to
// compute and is told when its logits lie in working memory, as a read is asked for and answered.
// The pool of keys, values and recurrent states in memory stays the one that counts. The GPU has a
// cache of it: rows and states that a pass makes come back with its logits, and those that the GPU
// lacks are given to it before a pass. So sessions, saved states and going back need nothing here,
// and where the GPU is lost the CPU computes the same batch from the same position. Where the GPU
// has the first layers alone, their residual stream comes back instead of logits, and the CPU goes
// on from there.
#pragma once

#include <string>
#include <vector>

#include "session/cpu_executor.h"

namespace sluice::gpu {

// A place in memory as the GPU's side, which shares that, knows it.
template <typename T>
[[nodiscard]] uint32_t address(const T* place) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place));
}

// What both sides see of a pass; web/gpu/program.ts has it too.
struct GpuPass {
  enum State : uint32_t { kNone = 0, kWanted = 1, kDone = 2 };
  uint32_t state = kNone;
  uint32_t lost = 0;    // set by the GPU's side: from now on the CPU computes
  uint32_t serial = 0;  // of the pass: what comes of an earlier one is dropped
  int32_t n = 0, first = 0;
  int32_t first_row = 0, n_rows = 0;  // rows whose logits are wanted
  int32_t held = 0;      // positions of the pool that the GPU's cache has, from the first on
  int32_t layer = -1;    // that is being computed, as the GPU's side tells
  uint32_t vectors = 0;  // address of [vecs] addresses of f32
  // Address of [layers][4] addresses: keys and values of the first head, the recurrent state before
  // the batch and where the one after it goes.
  uint32_t rows = 0;
  uint32_t on_gpu = 0;  // passes that the GPU has computed
  uint32_t least = 1;   // tokens of the smallest batch that the GPU is to compute
  // Why batches were not for the GPU, as bits.
  enum CpuFallback : uint32_t { kTexts = 1, kAdapters = 2 };
  uint32_t cpu_fallback = 0;
  uint32_t kept = 0;            // whether the GPU has the recurrent states before the batch
  uint32_t due = 0, n_due = 0;  // address and number of the Sequence::Checkpoints that it passes
  // Addresses, which another plan moves: of the embedding's rows, of the logits, of the addresses
  // of RoPE's tables.
  uint32_t x = 0, logits = 0, ropes = 0;
  uint32_t cut = 0;  // the first operation that is not the GPU's; 0: it has them all
};

class GpuExecutor final : public session::Executor {
 public:
  explicit GpuExecutor(session::Engine& engine);

  // What the GPU's side must know of the model and of this memory, as JSON.
  [[nodiscard]] std::string describe() const;

  void begin(session::Sequence& sequence, int32_t n, const session::BatchSpec& spec) override;
  [[nodiscard]] session::Step step(int32_t* max_ops) override;
  void abandon() override;
  [[nodiscard]] const session::Sequence* sequence() const override { return cpu_.sequence(); }
  [[nodiscard]] const Status& failure() const override { return cpu_.failure(); }
  [[nodiscard]] std::span<float> logits(int32_t row) const override { return cpu_.logits(row); }
  [[nodiscard]] std::span<float> embedding(int32_t i) const override { return cpu_.embedding(i); }
  [[nodiscard]] int32_t layer() const override;
  void observe(session::Observer observer) override;
  void watch_products(session::ProductWatch watch) override;

 private:
  // Of a batch: the embedding is the CPU's, as are the tables of RoPE; the rest is the GPU's.
  enum class Where : uint8_t { kCpu, kEmbedding, kGpu };
  [[nodiscard]] bool for_gpu(int32_t n, const session::BatchSpec& spec);
  [[nodiscard]] bool vectors_ready();
  [[nodiscard]] session::Step on_cpu(int32_t* max_ops);
  [[nodiscard]] bool take_layers_back();
  void hand_over();

  session::Engine& engine_;
  session::CpuExecutor cpu_;
  session::WeightStream feed_;
  GpuPass pass_;
  Where where_ = Where::kCpu;
  bool watched_ = false, taken_back_ = false;
  session::BatchSpec spec_;
  int32_t n_ = 0;
  // Whose rows the GPU has, and the position whose recurrent states; -1: of none.
  session::Sequence* held_of_ = nullptr;
  uint32_t restores_ = 0;
  int32_t kept_at_ = -1;
  // The plan that vectors_ are of.
  uint32_t replans_ = 0;
  std::vector<const float*> vectors_;
  std::vector<const void*> rows_, ropes_;
};

}  // namespace sluice::gpu
