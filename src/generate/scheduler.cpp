#include "generate/scheduler.h"

namespace sluice::generate {

// Steps a generation until it has ended or waits for a batched pass: kDone. kProgress: its draft
// model is computing, or its own pass if its session is not in the batcher, or such a pass is done.
Step Scheduler::advance(Generation& answer, int32_t max_ops) {
  while (answer.finish() == Finish::kNone && !answer.waits_for_pass()) {
    const bool alone = answer.computing();
    const Step step = answer.step(max_ops);
    if (step == Step::kBlocked && !answer.waits_for_pass()) return step;
    // Between two passes of its own, the session may be added to the batcher.
    if (alone && !answer.computing()) return Step::kProgress;
    if (answer.computing() && step == Step::kProgress && max_ops > 0) {
      if (!answer.waits_for_pass()) return step;
    }
  }
  return Step::kDone;
}

Step Scheduler::choose(int32_t max_ops) {
  for (Generation* answer : answers_) {
    const Step step = advance(*answer, max_ops);
    if (step != Step::kDone) return step;
  }
  return Step::kDone;
}

Step Scheduler::step(int32_t max_ops) {
  const Step chosen = choose(max_ops);
  if (chosen != Step::kDone) return chosen;
  if (!batcher_.waiting()) return Step::kDone;
  return batcher_.step(max_ops) == Step::kBlocked ? Step::kBlocked : Step::kProgress;
}

}  // namespace sluice::generate
