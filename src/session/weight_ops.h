// Operations that need weights and can block, one function each, like those in ops.h. They request
// what is missing, record their progress in the batch and resume there.
#pragma once

#include <vector>

#include "session/cpu_batch.h"
#include "session/embedding_rows.h"
#include "session/lora.h"
#include "session/weight_stream.h"

namespace sluice::session {

// Whether experts in memory are computed while others are read. Not in wasm, to save bytes of the
// binary.
#if defined(__wasm__)
inline constexpr bool kReadyExpertsFirst = false;
#else
inline constexpr bool kReadyExpertsFirst = true;
#endif

// A batch with what brings weights to its operations, and the progress of the current one.
struct WeightBatch : CpuBatch {
  explicit WeightBatch(const ExecutionContext& context);

  WeightStream stream;
  EmbeddingRows embeddings;
  Lora lora;
  ProductWatch watch;
  RoutingHook routing;
  std::vector<Product> products;
  std::vector<uint32_t> demand;
  std::vector<residency::ExpertUse> uses;  // of the current mixture

  size_t at = 0;                      // the current operation
  bool started = false;               // it has begun
  int32_t phase = 0;                  // of an expert
  int32_t n_experts = 0, expert = 0;  // experts with tokens, and the current one
  bool read_failed = false;           // the batch's results are incomplete
  bool adds_last = false;  // the experts' outputs are added when all are there, in ascending order
  int32_t announced = 0;   // experts whose reads the reader knows of

  void enter_op(size_t op) {
    at = op;
    started = false;
    phase = 0;
    stream.restart();
  }
};

// Runs the batch's current operation. False: blocked.
[[nodiscard]] bool run_op(WeightBatch& cx, const model::Op& op);
// Runs cx.products, with the adapters' terms. False: not done.
[[nodiscard]] bool run_products(WeightBatch& cx);
[[nodiscard]] bool op_moe(WeightBatch& cx, const model::Op& op);

}  // namespace sluice::session
