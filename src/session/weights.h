// The model's weights as they arrive: reads them, checks that they are finite, packs pinned ones in
// memory, and keeps the error once a weight is bad. Whoever computes asks here whether a unit or a
// small tensor is there. Knows nothing of sessions or forward passes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/program.h"
#include "residency/residency.h"
#include "session/compute_buffer.h"
#include "session/finite_check.h"
#include "session/memory_plan.h"

namespace sluice::session {

class Weights {
 public:
  // Borrows its arguments, also those of start(). Units are packed in `working`'s scratch.
  Weights(const model::Program& program, const MemoryPlan& plan, const ComputeBuffer& working)
      : program_(program), plan_(plan), working_(working) {}
  // Call once, before anything else. `reader`: null, if there are no direct reads.
  void start(const kernels::Table& table, ThreadPool& pool, RangeReader* reader);
  // Allocates what the plan says. Errors: kOutOfMemory.
  [[nodiscard]] Status allocate(residency::DirectReads direct_reads);
  // Follows a plan that has changed; weights that stay pinned are kept. Errors: kOutOfMemory.
  [[nodiscard]] Status replan();
  // Counts changes of the plan.
  [[nodiscard]] uint32_t replans() const { return replans_; }

  [[nodiscard]] residency::Residency& residency() { return residency_; }
  [[nodiscard]] const residency::Residency& residency() const { return residency_; }
  [[nodiscard]] RangeReader* reader() { return reader_; }
  [[nodiscard]] int32_t item_of_mat(int32_t mat) const {
    return plan_.items.mat[static_cast<size_t>(mat)];
  }
  // A small tensor as f32; null until it has arrived.
  [[nodiscard]] const float* vec(int32_t index) const;

  // Collects completed reads and requests more; true if something arrived.
  bool poll();
  // Packs pinned weights and converts small tensors whose bytes have arrived.
  void pack_loaded();
  // Threads with nothing to compute serve pending requests beside the driver, because a device is
  // faster with several readers. True if they served any.
  bool help_reading();

  [[nodiscard]] FiniteCheck& finite_check() { return check_; }
  // Turns a failed check into failure(). Call after a FiniteCheck.
  void settle_check();
  // Sets failure(): rows [first, last] of a tensor have a value that is not finite.
  void refuse(const std::string& tensor, int64_t first, int64_t last);
  void fail(Status why) { failure_ = std::move(why); }
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  void settle_unit(uint32_t unit, int thread);

  const model::Program& program_;
  const MemoryPlan& plan_;
  const ComputeBuffer& working_;
  const kernels::Table* table_ = nullptr;
  ThreadPool* pool_ = nullptr;
  RangeReader* reader_ = nullptr;
  residency::Residency residency_;
  FiniteCheck check_;
  std::vector<int32_t> item_mat_, item_vec_;  // the inverse of the plan's maps
  uint32_t replans_ = 0;
  Status failure_;
};

}  // namespace sluice::session
