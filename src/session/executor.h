// Computes batches of a sequence's tokens. The CPU's executor is in cpu_executor.h; the GPU's is
// stepped and resumed the same way. An engine has one executor, whose buffers all its sessions
// share, so it computes one batch at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "session/media.h"
#include "session/moe_router.h"
#include "session/partial_forward.h"
#include "session/sequence.h"
#include "session/step_queue.h"

namespace sluice::session {

enum class Step : uint8_t { kBlocked = 0, kProgress = 1, kDone = 2, kFailed = 3 };

// One sequence's share of a batch: `n` tokens from its position on.
struct BatchPart {
  Sequence* sequence = nullptr;
  int32_t n = 0;
  // Its rows whose logits are wanted, as in BatchSpec.
  int32_t first_row = 0, n_rows = 0;
};

struct NextnBatch;  // nextn.h

// What a batch computes.
struct BatchSpec {
  // Rows whose logits are wanted, [first_row, first_row + n_rows); none: the batch ends early.
  int32_t first_row = 0, n_rows = 0;
  int32_t logits_at = 0;  // rows of logits that earlier batches of the pass have already written
  // End of each input in a batch of several, ascending. Each begins at position 0 and sees only
  // itself. Empty: the batch continues the sequence. Must outlive the batch.
  std::span<const int32_t> ends;
  bool encode = false;  // the batch is the encoder's input of an encoder-decoder model
  bool embed = false;   // compute embeddings instead of logits; with kNone, one per row
  model::Pooling pooling = model::Pooling::kNone;
  // For an input in several batches: pooling begins, or ends, in this one.
  bool begins = true, completes = true;
  // Several sequences, the batch's own first: their rows follow one another, and so do their
  // logits. Empty: one sequence. Read only by begin().
  std::span<const BatchPart> parts;
  MediaBatch media;                      // rows: the batch is a picture's
  const PartialForward* part = nullptr;  // run only this part of the pass; must outlive the batch
  const NextnBatch* nextn = nullptr;     // run the MTP head; must outlive the batch
  // Each token of the batch is a step of its own, and all but the first are chosen by the executor,
  // which has max_queue() > 0; must outlive the batch.
  const StepQueue* queue = nullptr;
};

// Receives a checkpoint: `name` such as "Qcur-0.ROPE"; row t at data + t * stride, [ne0 * ne1].
using Observer = std::function<void(const char* name, int32_t ne0, int32_t ne1, int32_t n_tokens,
                                    const float* data, int64_t stride)>;

// Receives the inputs of a matrix multiplication: row t of n_tokens at x + t * ld, mat.cols values.
struct ProductWatch {
  void (*see)(void* context, const model::Mat& mat, const float* x, int64_t ld,
              int32_t n_tokens) = nullptr;
  void* context = nullptr;
};

// Sees, and may replace, the experts that a mixture (an index in Program::moes) has chosen for the
// rows of a batch: `choices` [n_tokens][n_used]. Their weights stay. Native builds only.
struct RoutingHook {
  void (*routed)(void* context, int32_t mixture, int32_t n_tokens, int32_t n_used,
                 Choice* choices) = nullptr;
  void* context = nullptr;
  // Computes experts in ascending order, also while others are in memory: for measurements.
  bool ascending = false;
};
#if defined(__wasm__)
inline constexpr bool kRoutingHook = false;
#else
inline constexpr bool kRoutingHook = true;
#endif

class Executor {
 public:
  virtual ~Executor() = default;

  // Begins `n` tokens of `sequence` (or spec.parts) from its position on; abandons a running batch.
  // Call Sequence::begin_batch before, and Sequence::commit_batch when the batch is done.
  virtual void begin(Sequence& sequence, int32_t n, const BatchSpec& spec) = 0;
  // Runs at most *max_ops operations and decrements it. kBlocked: weights are missing; kDone: the
  // batch is computed; kFailed: failure() holds the error and the batch is abandoned.
  [[nodiscard]] virtual Step step(int32_t* max_ops) = 0;
  // How many sequences a batch may have.
  [[nodiscard]] virtual int32_t max_parts() const { return 1; }
  // How many steps a batch with BatchSpec::queue may have, at most kMaxQueue; 0: it takes none.
  [[nodiscard]] virtual int32_t max_queue() const { return 0; }
  // The tokens that a batch with BatchSpec::queue chose, one after each of its steps. Empty: it had
  // one step only, and the caller chooses from logits(0).
  [[nodiscard]] virtual std::span<const Token> chosen() const { return {}; }
  // Drops one sequence from a batch of several; the others continue.
  virtual void drop(const Sequence& sequence) { static_cast<void>(sequence); }
  // Abandons the running batch.
  virtual void abandon() = 0;
  // The sequence of the running or last batch, to which the logits belong. Null: none.
  [[nodiscard]] virtual const Sequence* sequence() const = 0;
  [[nodiscard]] virtual const Status& failure() const = 0;
  // Raw logits [n_vocab] of a wanted row, counted from 0; valid until the next begin().
  [[nodiscard]] virtual std::span<float> logits(int32_t row) const = 0;
  // Embedding i of a batch: of input i, or of token i without pooling.
  [[nodiscard]] virtual std::span<float> embedding(int32_t i) const = 0;
  // The layer being computed; -1 outside layers.
  [[nodiscard]] virtual int32_t layer() const = 0;
  // Observes one batch from position 0; a null function ends it. Its attention runs in double
  // precision over f32 keys and values, so the values do not contain the cache's rounding.
  virtual void observe(Observer observer) = 0;
  // Watches every matrix multiplication; a null function ends it.
  virtual void watch_products(ProductWatch watch) = 0;
  // Calls the hook for every mixture of later batches; a null function ends it. Executors that do
  // not route on the CPU ignore it.
  virtual void hook_routing(RoutingHook hook) { static_cast<void>(hook); }
};

}  // namespace sluice::session
