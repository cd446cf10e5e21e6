// A loaded model: program, tokenizer, weights under the budget, and the working memory of a pass.
// It does no I/O: a driver serves residency().queue(). Sessions (timelines) run on it one at a
// time.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/aligned.h"
#include "base/thread_pool.h"
#include "model/program.h"
#include "residency/residency.h"
#include "session/memory_plan.h"
#include "tokenizer/tokenizer.h"

namespace sluice::session {

// Everything known from the header: what `info` and `inspect` show.
struct Inspection {
  model::Program program;
  MemoryPlan plan;
  const kernels::Table* table = nullptr;
};

// Errors: build_program's, plan_memory's, kInvalidArgument for an unknown instruction set.
[[nodiscard]] Result<Inspection> inspect(const gguf::Header& header, const EngineOptions& options);

class Engine {
 public:
  // Copies what it needs from the header; allocates everything. Errors: inspect's,
  // tokenizer::create's, kBadTokenizer (vocabulary and embedding differ), kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> open(const gguf::Header& header,
                                                            const EngineOptions& options);

  [[nodiscard]] const model::Program& program() const { return program_; }
  [[nodiscard]] const MemoryPlan& plan() const { return plan_; }
  [[nodiscard]] const kernels::Table& table() const { return *table_; }
  [[nodiscard]] const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] residency::Residency& residency() { return residency_; }
  [[nodiscard]] const residency::Residency& residency() const { return residency_; }
  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  [[nodiscard]] RangeReader* reader() { return options_.reader; }

  // Another budget (0: as much as the model wants) for the same context, while sessions live on;
  // weights that stay pinned are not read again. A pass under way starts its batch anew. No fill
  // may be under way. Errors: plan_memory's and kInvalidArgument, which change nothing;
  // kOutOfMemory, after which the engine can compute no more.
  [[nodiscard]] Status set_memory_budget(uint64_t budget);
  // Counts changes of the budget.
  [[nodiscard]] uint32_t replans() const { return replans_; }
  // The largest n_batch that plan() ever has.
  [[nodiscard]] int32_t largest_batch() const { return options_.n_batch; }

  // --- working memory
  // ------------------------------------------------------------------------------
  [[nodiscard]] float* buffer(model::Buf b) const { return buffers_[static_cast<size_t>(b)]; }
  [[nodiscard]] int64_t width(model::Buf b) const { return program_.width[static_cast<size_t>(b)]; }
  [[nodiscard]] uint8_t* q8() const { return q8_; }
  // [n_batch][n_rot/2] cosines, then sines, of RoPE variant i.
  [[nodiscard]] float* rope_table(size_t i) const { return rope_tables_[i]; }
  [[nodiscard]] uint8_t* embedding_rows() const { return embedding_rows_; }
  [[nodiscard]] float* moe_in() const { return moe_; }
  [[nodiscard]] float* attention_partials() const { return partials_; }
  [[nodiscard]] uint8_t* scratch(int thread) const {
    return scratch_.as<uint8_t>() + static_cast<size_t>(thread) * scratch_stride_;
  }

  // --- weights
  // ---------------------------------------------------------------------------------------
  [[nodiscard]] int32_t item_of_mat(int32_t mat) const {
    return plan_.mat_item[static_cast<size_t>(mat)];
  }
  // A small tensor as f32, null while it has not arrived.
  [[nodiscard]] const float* vec(int32_t index) const;
  // Packs pinned weights and converts small tensors whose bytes have arrived.
  void settle_arrivals();
  // Takes over fills and asks for more; true when something arrived.
  bool pump();
  // Has the threads serve requests beside the driver, while there is nothing to compute: a device
  // gives more to several readers. True when they did.
  bool help_reading();

 private:
  Engine() = default;
  void map_items();
  [[nodiscard]] Status allocate();
  void settle_unit(uint32_t unit, int thread);

  model::Program program_;
  MemoryPlan plan_;
  EngineOptions options_;  // as planned at first
  uint32_t replans_ = 0;
  const kernels::Table* table_ = nullptr;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<ThreadPool> pool_;
  residency::Residency residency_;
  std::vector<int32_t> item_mat_, item_vec_;  // the inverse of the plan's maps
  AlignedBuffer activations_, scratch_;
  size_t scratch_stride_ = 0;
  std::array<float*, model::kBufCount> buffers_{};
  std::vector<float*> rope_tables_;
  uint8_t* q8_ = nullptr;
  uint8_t* embedding_rows_ = nullptr;
  float* moe_ = nullptr;
  float* partials_ = nullptr;
};

}  // namespace sluice::session
