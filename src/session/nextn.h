// Running the head that predicts further tokens (model/nextn.h), natively alone. An engine that was
// opened for it keeps the states of the last tokens that passes have computed, and a small sequence
// of the head's own: what it has read of the text that is guessed for, which begins where these
// states began, not with the text. So nothing of it is in a session: what is saved, forked, gone
// back in or given up is as without it, and after any of these the head begins again with the
// states that there are. Positions count from where its sequence begins, which rotation does not
// tell apart. It guesses for one text at a time, and not beside others in one batch.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "draft/policy.h"
#include "session/engine.h"
#include "session/executor.h"
#include "session/sequence.h"

namespace sluice::session {

// Of the text's last tokens whose states are kept: as many as a pass with guesses may have.
inline constexpr int32_t kNextnStates = draft::kMaxPass;

// What it is not run with. Errors: kInvalidArgument, naming it.
[[nodiscard]] Status check_nextn(const EngineOptions& options);
// What the head keeps of a text of n_ctx positions.
[[nodiscard]] kv::KvShape nextn_shape(const model::Program& program, int32_t n_ctx);
[[nodiscard]] uint64_t nextn_bytes(const model::Program& program, int32_t n_ctx);

// A batch of the head: row t reads the state at (first + t) % rows.
struct NextnBatch {
  const float* states = nullptr;  // [rows][n_embd]
  int32_t rows = 1, first = 0;
  bool normed = false;     // they are what the head itself has given
  float* given = nullptr;  // [n_embd], of the last row
};

class Session;

class NextnHead {
 public:
  // Errors: kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<NextnHead>> create(Engine& engine);

  // --- from the executor: of a batch of one sequence, of its rows of the residual stream
  void begin_rows(const Sequence& sequence, int32_t first);
  void keep_rows(const Sequence& sequence, int32_t first, int32_t n, const float* x, int64_t ld);
  void forget_rows() { sequence_ = nullptr; }

  // --- guessing: by one at a time, from start() to end()
  [[nodiscard]] bool start(const void* drafter);
  void end(const void* drafter);
  // How many states the head has to read before it guesses what follows the session's sequence and
  // `upcoming`; 0: it cannot now, for want of states or since another pass is under way.
  [[nodiscard]] int32_t missing(const Session& target, std::span<const Token> upcoming);
  // Begins to read them, after missing() has said how many.
  void begin();
  // Begins a guess of what follows its last one, which is `token`. False: there is no room.
  [[nodiscard]] bool go_on(Token token);
  // As a session's. kDone: logits() are those of the guess.
  [[nodiscard]] Step step(int32_t max_ops);
  [[nodiscard]] std::span<const float> logits() const { return engine_.executor().logits(0); }
  [[nodiscard]] const Status& failure() const { return failure_; }
  void cancel();

  // What reading so many states at once costs, and what is known of the guesses.
  [[nodiscard]] draft::BatchLatency& costs() { return costs_; }
  [[nodiscard]] draft::DraftState& known() { return known_; }
  // Bytes of weights that a guess reads.
  [[nodiscard]] uint64_t weights() const;

 private:
  explicit NextnHead(Engine& engine) : engine_(engine) {}
  void begin_pass(int32_t n);
  void begin_batch();
  [[nodiscard]] float* state(int32_t position) {
    return states_.data() + size_t{static_cast<uint32_t>(position % kNextnStates)} * width_;
  }

  Engine& engine_;
  size_t width_ = 0;
  std::vector<float> states_;           // [kNextnStates][n_embd] of position p at p % kNextnStates
  std::vector<Token> tokens_;           // [kNextnStates] likewise
  std::vector<float> given_;            // [n_embd] of the head's last row
  const Sequence* sequence_ = nullptr;  // whose states they are
  uint32_t restores_ = 0;               // of it
  int32_t from_ = 0, until_ = 0;        // positions of the states

  const void* drafter_ = nullptr;
  kv::KvPool pool_;
  std::unique_ptr<Sequence> own_;   // position q has read the state of base_ + q and the next token
  const Sequence* read_ = nullptr;  // the sequence that it reads
  int32_t base_ = 0;
  int32_t sure_ = 0;         // its positions that have read states, not guesses
  std::vector<Token> next_;  // tokens of the pass
  bool computing_ = false;
  bool reading_ = false;  // states, not what it has given
  int32_t end_ = 0, batch_ = 0, rows_ = 0;
  NextnBatch now_;
  Status failure_;
  draft::BatchLatency costs_;
  draft::DraftState known_;
};

}  // namespace sluice::session
