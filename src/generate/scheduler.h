// Several answers at once: each is a generation of its own, and the passes that they begin are
// computed together (session/batcher.h). Between passes every answer chooses its next token,
// answers begin and end, and prompts go in between.
#pragma once

#include <cstdint>
#include <vector>

#include "generate/generation.h"
#include "session/batcher.h"

namespace sluice::generate {

class Scheduler {
 public:
  // The engine outlives this, this its sessions' time in it.
  explicit Scheduler(session::Engine& engine) : batcher_(engine) {}

  // Takes a session whose answers are to be computed with those of others. Errors: Batcher::add's.
  [[nodiscard]] Status add(session::Session& session) { return batcher_.add(session); }
  void remove(session::Session& session) { batcher_.remove(session); }
  // Takes an answer that has begun, on such a session, or alone; it outlives its time here.
  void add(Generation& answer) { answers_.push_back(&answer); }
  void remove(const Generation& answer) { std::erase(answers_, &answer); }
  // Leaves the passes of a session out while nobody takes what its answer says.
  void hold(session::Session& session, bool held) { batcher_.hold(session, held); }

  // Whether a pass is to be computed.
  [[nodiscard]] bool waiting() const { return batcher_.waiting(); }
  [[nodiscard]] const session::Batcher::Counts& counts() const { return batcher_.counts(); }
  // Works on: at most `max_ops` operations of a pass, and one token of each answer. Answers that
  // have ended, by failure or not, stay until they are removed. kBlocked: weights are missing.
  // kDone: no answer has anything to do.
  [[nodiscard]] Step step(int32_t max_ops = 0);
  // The first part of it: each answer takes what it needs of the last pass and begins its next.
  // kDone: nobody needs the last pass any more, and another session's may come between.
  [[nodiscard]] Step choose(int32_t max_ops = 0);

 private:
  session::Batcher batcher_;
  [[nodiscard]] Step advance(Generation& answer, int32_t max_ops);

  std::vector<Generation*> answers_;
};

}  // namespace sluice::generate
