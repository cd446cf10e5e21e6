// Runs the multi-token prediction (MTP) head (model/nextn.h) as a draft source; native builds only.
// The engine keeps the hidden states of the last tokens that passes computed, and a small sequence
// of the head's own with its KV cache. That sequence begins where the states begin, not where the
// text begins. Sessions hold none of this: saving, forking, rewinding and cancelling ignore the
// head, which afterwards restarts from the states it has. Its positions count from the start of its
// own sequence, which RoPE does not distinguish. It drafts for one sequence at a time, and not
// within batches of several.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "draft/policy.h"
#include "session/cpu_batch.h"
#include "session/passes.h"
#include "session/sequence.h"

namespace sluice::session {

// Number of recent tokens whose states are kept: as many as a pass with draft tokens may have.
inline constexpr int32_t kNextnStates = draft::kMaxPass;

// Checks for options that exclude the MTP head. Errors: kInvalidArgument, naming the option.
[[nodiscard]] Status check_nextn(const EngineOptions& options);
// The head's KV cache for n_ctx positions, and its bytes with the states.
[[nodiscard]] kv::KvShape nextn_shape(const model::Program& program, int32_t n_ctx);
[[nodiscard]] uint64_t nextn_bytes(const model::Program& program, int32_t n_ctx);

// A batch of the head: row t reads the state at (first + t) % rows.
struct NextnBatch {
  const float* states = nullptr;  // [rows][n_embd]
  int32_t rows = 1, first = 0;
  bool normed = false;     // the states are the head's own (already normed) output
  float* given = nullptr;  // [n_embd], receives the output of the last row
};

// --- for an executor: the head's part of a batch
// Batches of the model: what the head may read later.
void note_states_begin(const CpuBatch& cx);
// Stores the states of all tokens, before rows are selected.
void note_states(const CpuBatch& cx);
// Batches of the head: copies its states in and its output out.
void enter_nextn(const CpuBatch& cx);
void leave_nextn(const CpuBatch& cx);
// Demands the weights from operation `at` to the next mixture, which are not in the streaming
// order. `demand` is scratch.
void demand_nextn(const CpuBatch& cx, size_t at, std::vector<uint32_t>& demand);

class Session;

class NextnHead {
 public:
  // Errors: kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<NextnHead>> create(
      const ExecutionContext& context, Passes& passes, const std::unique_ptr<Executor>& executor);

  // --- called by the executor with a batch of one sequence: rows of the residual stream
  void begin_rows(const Sequence& sequence, int32_t first);
  void keep_rows(const Sequence& sequence, int32_t first, int32_t n, const float* x, int64_t ld);
  void forget_rows() { sequence_ = nullptr; }

  // --- drafting: by one drafter at a time, from start() to end()
  [[nodiscard]] bool start(const void* drafter);
  void end(const void* drafter);
  // How many states the head has to read before it can predict what follows the session's sequence
  // and `upcoming`; 0: it cannot now, because states are missing or another pass is running.
  [[nodiscard]] int32_t missing(const Session& target, std::span<const Token> upcoming);
  // Begins to read the states that missing() counted.
  void begin();
  // Begins to predict the token after its last draft token, `token`. False: the context is full.
  [[nodiscard]] bool go_on(Token token);
  // As Session::step(). kDone: logits() predict the next token.
  [[nodiscard]] Step step(int32_t max_ops);
  [[nodiscard]] std::span<const float> logits() const { return executor_->logits(0); }
  [[nodiscard]] const Status& failure() const { return failure_; }
  void cancel();

  // Latency of reading several states at once, and acceptance statistics of the draft tokens.
  [[nodiscard]] draft::BatchLatency& costs() { return costs_; }
  [[nodiscard]] draft::DraftState& known() { return known_; }
  // Bytes of weights read per draft token.
  [[nodiscard]] uint64_t weights() const;

 private:
  NextnHead(const ExecutionContext& context, Passes& passes,
            const std::unique_ptr<Executor>& executor)
      : cx_(context), passes_(passes), executor_(executor) {}
  void begin_pass(int32_t n);
  void begin_batch();
  [[nodiscard]] float* state(int32_t position) {
    return states_.data() + size_t{static_cast<uint32_t>(position % kNextnStates)} * width_;
  }

  ExecutionContext cx_;
  Passes& passes_;
  const std::unique_ptr<Executor>& executor_;  // the engine's, which may be replaced
  size_t width_ = 0;
  std::vector<float> states_;           // [kNextnStates][n_embd]; position p at p % kNextnStates
  std::vector<Token> tokens_;           // [kNextnStates], likewise
  std::vector<float> given_;            // [n_embd], the head's last output
  const Sequence* sequence_ = nullptr;  // the sequence whose states are kept
  uint32_t restores_ = 0;               // its restores() at that time
  int32_t from_ = 0, until_ = 0;        // positions of the states

  const void* drafter_ = nullptr;
  kv::KvPool pool_;
  std::unique_ptr<Sequence> own_;   // position q has read the state of base_ + q and the next token
  const Sequence* read_ = nullptr;  // the sequence it drafts for
  int32_t base_ = 0;
  int32_t sure_ = 0;         // its positions computed from states, not from draft tokens
  std::vector<Token> next_;  // tokens of the pass
  bool computing_ = false;
  bool reading_ = false;  // the pass reads states, not the head's own output
  int32_t end_ = 0, batch_ = 0, rows_ = 0;
  NextnBatch now_;
  Status failure_;
  draft::BatchLatency costs_;
  draft::DraftState known_;
};

}  // namespace sluice::session
