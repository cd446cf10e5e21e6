// Continuous batching: computes the forward passes of several sessions together, so that each
// weight is read once for all of them. A session in a batcher does not compute the passes it
// begins: its step() is blocked until the batcher has computed them. Sessions join and leave
// between batches. A batch takes short passes (decode steps) whole, and only as much of long ones
// (prompts) as keeps the decode rate up. Each session's logits are bit-identical to those computed
// alone.
#pragma once

#include <cstdint>
#include <vector>

#include "session/session.h"

namespace sluice::session {

class Batcher {
 public:
  // The engine must outlive the batcher. The batcher must outlive its sessions or their removal.
  explicit Batcher(const SessionContext& context);
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // False for bidirectional and encoder-decoder models: their sessions are computed alone.
  [[nodiscard]] static bool takes(const ExecutionContext& context);
  // Adds a session of the same engine. Embeddings are computed without the batcher.
  // Errors: kInvalidArgument (the planned number of sessions is reached, or a pass is running).
  [[nodiscard]] Status add(Session& session);
  // Cancels the session's pass.
  void remove(Session& session);
  // While held, the session takes part in no batch.
  void hold(Session& session, bool held);

  // Runs the current batch, or begins the next: at most `max_ops` operations (0: no limit).
  // kDone: a batch is computed and its logits are valid until the next call, or no session waits.
  // kBlocked: weights are missing, or a pass outside the batcher is running. kFailed: the sessions
  // of the batch report the error; the others keep waiting.
  [[nodiscard]] Step step(int32_t max_ops = 0);
  // Whether a pass is running or waiting.
  [[nodiscard]] bool waiting() const;
  // Rows of logits for one session's pass, if the sessions of the last batch share the buffer.
  [[nodiscard]] int32_t rows_share() const;
  // Batches computed, their tokens, and the time inside step().
  struct Counts {
    uint64_t passes = 0, tokens = 0;
    double compute_ms = 0;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  // Number of sessions in the last batch.
  [[nodiscard]] int32_t sharing() const { return shared_by_; }

 private:
  friend class Session;
  struct Room {
    int32_t tokens = 0, rows = 0;
  };
  [[nodiscard]] bool begin();
  bool take(Session& session, int32_t max_tokens, Room* room);
  [[nodiscard]] static bool ready(const Session& session);
  [[nodiscard]] bool is_short(const Session& session) const;
  void commit();
  void end();
  void fail(const Status& why);
  void drop(Session& session);  // its pass has been cancelled
  void note(double ms);

  const SessionContext& cx_;
  std::vector<Session*> members_;
  std::vector<Session*> taken_;  // sessions in the batch; null: has cancelled its pass
  std::vector<BatchPart> parts_;
  bool under_way_ = false;
  int32_t tokens_ = 0, prompts_ = 0;  // tokens of the batch; those that belong to long passes
  int32_t shared_by_ = 1;
  size_t turn_ = 0;
  int32_t beside_;  // prompt tokens allowed in a batch with decode steps
  double answers_ms_ = 0;
  Counts counts_;
};

}  // namespace sluice::session
