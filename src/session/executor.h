// What computes batches of a sequence's tokens. The CPU's is cpu_executor.h; another device's steps
// and resumes the same way. An engine has one executor, whose working memory all its sessions
// share: it computes one batch at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "session/partial_forward.h"
#include "session/sequence.h"

namespace sluice::session {

enum class Step : uint8_t { kBlocked = 0, kProgress = 1, kDone = 2, kFailed = 3 };

// One sequence's share of a batch: `n` tokens from its position on.
struct BatchPart {
  Sequence* sequence = nullptr;
  int32_t n = 0;
  // Of its rows those whose logits are wanted, as in BatchSpec.
  int32_t first_row = 0, n_rows = 0;
};

struct NextnBatch;  // nextn.h

// What a batch is computed for.
struct BatchSpec {
  // Rows whose logits are wanted, [first_row, first_row + n_rows); none: the batch ends early.
  int32_t first_row = 0, n_rows = 0;
  int32_t logits_at = 0;  // logits of the pass that batches before have given: these come behind
  // Where each of several texts ends in the batch, ascending: they begin at position 0 and see only
  // themselves. Empty: the batch goes on from the sequence. Outlives the batch.
  std::span<const int32_t> ends;
  bool encode = false;  // the batch is the source that a decoder answers
  bool embed = false;   // embeddings are wanted instead, pooled so; of kNone, every row as it is
  model::Pooling pooling = model::Pooling::kNone;
  // Of one text in several batches: pooling begins, or is done, in this one.
  bool begins = true, completes = true;
  // Several sequences, the first of them the batch's own: their rows lie one after another, and
  // wanted logits likewise. Empty: one. Read by begin() alone.
  std::span<const BatchPart> parts;
  const PartialForward* part = nullptr;  // of the pass that is wanted alone; outlives the batch
  const NextnBatch* nextn = nullptr;     // of the head that predicts further tokens; outlives it
};

// Observes a checkpoint: `name` such as "Qcur-0.ROPE"; row t at data + t * stride, [ne0 * ne1].
using Observer = std::function<void(const char* name, int32_t ne0, int32_t ne1, int32_t n_tokens,
                                    const float* data, int64_t stride)>;

// Sees what a matrix was multiplied with: row t of n_tokens at x + t * ld, mat.cols values.
struct ProductWatch {
  void (*see)(void* context, const model::Mat& mat, const float* x, int64_t ld,
              int32_t n_tokens) = nullptr;
  void* context = nullptr;
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Begins `n` tokens of `sequence`, or as spec.parts say, from its position on; what was being
  // computed is given up. The sequence knows of the batch (Sequence::begin_batch) and commits it
  // when it is done.
  virtual void begin(Sequence& sequence, int32_t n, const BatchSpec& spec) = 0;
  // Works on it, at most *max_ops operations, which it counts down. kBlocked: weights are missing;
  // kDone: the batch is computed; kFailed: failure() says why, and the batch is given up.
  [[nodiscard]] virtual Step step(int32_t* max_ops) = 0;
  // Sequences that a batch may have.
  [[nodiscard]] virtual int32_t max_parts() const { return 1; }
  // Of a batch of several, gives one up; the others go on.
  virtual void drop(const Sequence& sequence) { static_cast<void>(sequence); }
  // Gives up what is being computed.
  virtual void abandon() = 0;
  // What is being computed, or was last: logits belong to it. Null: nothing.
  [[nodiscard]] virtual const Sequence* sequence() const = 0;
  [[nodiscard]] virtual const Status& failure() const = 0;
  // Raw logits [n_vocab] of a wanted row, the first is 0; until the next begin().
  [[nodiscard]] virtual std::span<float> logits(int32_t row) const = 0;
  // Result i of a batch for embeddings: of text i, or of token i without pooling.
  [[nodiscard]] virtual std::span<float> embedding(int32_t i) const = 0;
  // Layer that is being computed, -1 outside layers.
  [[nodiscard]] virtual int32_t layer() const = 0;
  // For the values inside one batch from position 0; a null function ends it.
  virtual void observe(Observer observer) = 0;
  // For every product; a null function ends it.
  virtual void watch_products(ProductWatch watch) = 0;
};

}  // namespace sluice::session
