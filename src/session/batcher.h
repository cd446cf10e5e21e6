// Batches of several sessions. A session that is added to a batcher does not compute the passes
// that it begins: it waits (its step() is blocked) while the batcher computes them together with
// those of the others, so that each weight is read once for all. Sessions come and go between
// passes. A batch takes short passes, an answer's next tokens, whole, and of long ones, prompts, so
// much that the answers keep their pace. Each session gets the logits that it would have alone, to
// the bit.
#pragma once

#include <cstdint>
#include <vector>

#include "session/session.h"

namespace sluice::session {

class Batcher {
 public:
  // The engine outlives its batcher, the batcher its sessions or their time in it.
  explicit Batcher(Engine& engine);
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // Not for models that read texts whole: a session of theirs is computed by itself.
  [[nodiscard]] static bool takes(const Engine& engine);
  // A session of the same engine; embeddings are computed outside.
  // Errors: kInvalidArgument (as many as the plan has room for, a pass under way).
  [[nodiscard]] Status add(Session& session);
  // Gives its pass up.
  void remove(Session& session);
  // Leaves its passes out of batches until it is held no more.
  void hold(Session& session, bool held);

  // Works on the batch under way, or begins the next: at most `max_ops` operations (0: no limit).
  // kDone: a batch is computed, whose logits stay until the next call, or nobody waits. kBlocked:
  // weights are missing, or a pass outside is under way. kFailed: the sessions say why; whoever is
  // not part of it waits on.
  [[nodiscard]] Step step(int32_t max_ops = 0);
  // Whether a pass is to be computed.
  [[nodiscard]] bool waiting() const;
  // Rows of logits for one session's pass, so that those of the last batch find room together.
  [[nodiscard]] int32_t rows_share() const;
  // What was computed: batches, their tokens, and the time inside step().
  struct Counts {
    uint64_t passes = 0, tokens = 0;
    double compute_ms = 0;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  // Sessions in the last batch.
  [[nodiscard]] int32_t sharing() const { return shared_by_; }

 private:
  friend class Session;
  struct Room {
    int32_t tokens = 0, rows = 0;
  };
  [[nodiscard]] bool begin();
  bool take(Session& session, int32_t most, Room* room);
  [[nodiscard]] static bool ready(const Session& session);
  [[nodiscard]] bool is_short(const Session& session) const;
  void commit();
  void end();
  void fail(const Status& why);
  void drop(Session& session);  // its pass has been given up
  void note(double ms);

  Engine& engine_;
  std::vector<Session*> members_;
  std::vector<Session*> taken_;  // of the batch; null: has given its pass up
  std::vector<BatchPart> parts_;
  bool under_way_ = false;
  int32_t tokens_ = 0, prompts_ = 0;  // of the batch; of them, of long passes
  int32_t shared_by_ = 1;
  size_t turn_ = 0;
  int32_t beside_;  // tokens of prompts in a batch with answers
  double answers_ms_ = 0;
  Counts counts_;
};

}  // namespace sluice::session
