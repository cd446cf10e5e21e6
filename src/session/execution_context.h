// What computing a forward pass needs of a loaded model, as plain references: executors, the weight
// stream, approximate modes and the MTP head get this and not the engine. The engine outlives them.
#pragma once

#include <cstdint>
#include <memory>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/program.h"
#include "session/adapter_set.h"
#include "session/approximation.h"
#include "session/compute_buffer.h"
#include "session/memory_plan.h"
#include "session/time_breakdown.h"
#include "session/weights.h"

namespace sluice::session {

class NextnHead;

struct ExecutionContext {
  const model::Program& program;
  const MemoryPlan& plan;
  const kernels::Table& table;
  ThreadPool& pool;
  ComputeBuffer& working;
  Weights& weights;
  const AdapterSet& adapters;
  const Approximations& modes;
  ApproximateState& approximate;
  const std::unique_ptr<NextnHead>& nextn;  // null: not requested
  int32_t largest_batch;                    // the largest n_batch that the plan ever has
  TimeBreakdown& times;

  [[nodiscard]] int64_t width(model::Buf b) const { return program.width[static_cast<size_t>(b)]; }
  [[nodiscard]] const float* vec(int32_t index) const { return weights.vec(index); }
  // The mode of an ApproximateOp.
  [[nodiscard]] Approximation& mode(int32_t i) const { return *modes[static_cast<size_t>(i)]; }
};

}  // namespace sluice::session
