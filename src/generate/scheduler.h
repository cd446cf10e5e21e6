// Continuous batching: runs several generations in parallel and computes their forward passes
// together (session/batcher.h). Between two passes, each generation samples its next token, and
// generations and prompts can start and end.
#pragma once

#include <cstdint>
#include <vector>

#include "generate/generation.h"
#include "session/batcher.h"

namespace sluice::generate {

class Scheduler {
 public:
  // The engine must outlive this. Sessions must be removed before this is destroyed.
  explicit Scheduler(const session::SessionContext& context) : batcher_(context) {}

  // Adds a session whose forward passes are batched with those of others. Errors: Batcher::add's.
  [[nodiscard]] Status add(session::Session& session) { return batcher_.add(session); }
  void remove(session::Session& session) { batcher_.remove(session); }
  // Adds a generation that has begun, on a session that was added or not. Borrowed until removed.
  void add(Generation& answer) { answers_.push_back(&answer); }
  void remove(const Generation& answer) { std::erase(answers_, &answer); }
  // Pauses a session's passes while nobody takes the generation's output.
  void hold(session::Session& session, bool held) { batcher_.hold(session, held); }

  // Whether a forward pass is waiting to be computed.
  [[nodiscard]] bool waiting() const { return batcher_.waiting(); }
  [[nodiscard]] const session::Batcher::Counts& counts() const { return batcher_.counts(); }
  // Runs at most `max_ops` operations of a forward pass, and samples one token of each generation.
  // Generations that have ended or failed stay until they are removed. kBlocked: weights are
  // missing. kDone: no generation has anything to do.
  [[nodiscard]] Step step(int32_t max_ops = 0);
  // The first half of step(): each generation samples from the last pass and begins its next one.
  // kDone: the last pass's logits are not needed any more, so another session may run a pass.
  [[nodiscard]] Step choose(int32_t max_ops = 0);

 private:
  session::Batcher batcher_;
  [[nodiscard]] Step advance(Generation& answer, int32_t max_ops);

  std::vector<Generation*> answers_;
};

}  // namespace sluice::generate
