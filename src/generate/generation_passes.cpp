// The forward passes of a generation: tokens that are known, draft tokens to check, and queues of
// steps whose tokens the executor chooses.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "generate/generation_state.h"

namespace sluice::generate {

Step Generation::Impl::advance(int32_t max_ops) {
  const Step step = session.step(max_ops);
  if (in_prompt) counts.computed = session.position() - counts.cached;
  if (step == Step::kFailed) return fail(session.failure());
  if (step != Step::kDone) return step;
  if (in_prompt && static_cast<size_t>(session.position()) < parts.size()) {
    Status begun = begin_part();
    return begun.ok() ? Step::kProgress : fail(std::move(begun));
  }
  if (in_prompt) {
    length = session.position();
    first_row = length - 1;
    prompt_end = monotonic_ms();
    counts.prompt_ms = prompt_end - started;
    in_prompt = false;
    if (options.max_tokens == 0) return end(Finish::kLength);
  }
  state = State::kChoose;
  return Step::kProgress;
}

// Accepted draft tokens are computed already. The other tokens begin the next pass. A recurrent
// state may rewind further to drop rejected draft tokens; the tokens in between are recomputed.
Step Generation::Impl::go_on() {
  const std::span<const Token> held = session.tokens();
  size_t known = 0;
  while (known < upcoming.size() && static_cast<size_t>(length) < held.size() &&
         held[static_cast<size_t>(length)] == upcoming[known]) {
    ++known;
    ++length;
  }
  (queued > 0 ? counts.passes : counts.accepted) += static_cast<int32_t>(known);
  if (known == upcoming.size()) return Step::kProgress;
  upcoming.erase(upcoming.begin(), upcoming.begin() + static_cast<std::ptrdiff_t>(known));
  const session::MemoryPlan& plan = session.context().plan;
  const int64_t room = plan.context.n_ctx - length - static_cast<int64_t>(upcoming.size());
  if (room < 0) return end(Finish::kContext);
  if (static_cast<size_t>(length) < held.size()) {  // `held` is valid until a pass begins
    const int32_t reached = session.rewind(length);
    upcoming.insert(upcoming.begin(), held.begin() + reached, held.begin() + length);
  }
  state = State::kDraft;
  if (!drafter) return begin_pass();
  int64_t most =
      std::min<int64_t>(room, plan.batch.draft_batch - static_cast<int64_t>(upcoming.size()));
  most = std::min<int64_t>(most, session.batch_share().logits_rows - 1);
  most = std::min(
      most, session.sequence().tokens_until_eviction() - static_cast<int64_t>(upcoming.size()));
  if (options.max_tokens >= 0) most = std::min(most, options.max_tokens - counts.generated - 1);
  if (!keeps_pictures(most)) most = 0;
  drafter->begin(upcoming, static_cast<int32_t>(most));
  return Step::kProgress;
}

// Whether tokens that are computed behind the upcoming ones, and may be wrong, can be rewound
// without losing a picture, whose rows are not there any more.
bool Generation::Impl::keeps_pictures(int64_t most) const {
  const int32_t n = length + static_cast<int32_t>(upcoming.size());
  return session.sequence().keeps_pictures(n, static_cast<int32_t>(std::max<int64_t>(most, 0)));
}

Step Generation::Impl::draft_step(int32_t max_ops) {
  const Step step = drafter->step(max_ops);
  if (step == Step::kFailed) return fail(drafter->failure());
  return step == Step::kDone ? begin_pass() : step;
}

// How many steps the executor may choose the tokens of; 0 or 1: none. Behind a queue that ended
// early the sampler decides.
int32_t Generation::Impl::steps_to_queue() const {
  const sample::Params& params = options.sampling;
  const bool drawn = params.temperature > 0;
  const int32_t most = session.max_queue();
  if (most < 2 || upcoming.size() != 1 || drafter || matcher || options.logprobs >= 0 ||
      !options.script.empty() || !params.logit_bias.empty() ||
      (drawn && (params.top_k < 1 || params.top_k > session::kMaxQueuedTopK)) ||
      static_cast<int32_t>(session.chosen().size()) < queued || !keeps_pictures(most)) {
    return 0;
  }
  if (options.max_tokens < 0) return most;
  return static_cast<int32_t>(std::min<int64_t>(options.max_tokens - counts.generated, most));
}

Status Generation::Impl::begin_queue(int32_t steps) {
  if (!options.ignore_eos) queue.stops = tokenizer.end_of_generation();
  const sample::Params& params = options.sampling;
  const bool penalized = sample::penalizes(params);
  if (params.temperature > 0 || penalized) {
    const int32_t n_ctx = session.context().plan.context.n_ctx;
    const int32_t last_n = params.penalty_last_n < 0 ? n_ctx : params.penalty_last_n;
    const std::span<float> all(sampling, session::kQueueParams + static_cast<size_t>(steps));
    all[0] = params.temperature;
    all[1] = static_cast<float>(params.top_k);
    all[2] = params.top_p;
    all[3] = params.min_p;
    all[4] = params.repeat_penalty;
    all[5] = params.frequency_penalty;
    all[6] = params.presence_penalty;
    all[7] = static_cast<float>(penalized ? std::min(last_n, n_ctx) : 0);
    sampler.peek(all.subspan(session::kQueueParams));
    queue.sampling = all;
  }
  return session.begin_queue(upcoming[0], steps, queue);
}

Step Generation::Impl::begin_pass() {
  const int32_t steps = steps_to_queue();
  queued = steps > 1 ? steps : 0;
  const size_t said = upcoming.size();
  if (drafter) {
    const std::span<const Token> drafts = drafter->draft_tokens();
    upcoming.insert(upcoming.end(), drafts.begin(), drafts.end());
  }
  const int32_t drafted = static_cast<int32_t>(upcoming.size() - said);
  Status begun = queued > 0    ? begin_queue(steps)
                 : drafted > 0 ? session.begin_last(upcoming, drafted + 1)
                               : session.begin(upcoming);
  if (!begun.ok()) return fail(std::move(begun));
  length = session.position() + static_cast<int32_t>(said);
  first_row = length - 1;
  ++counts.passes;
  counts.drafted += drafted;
  state = State::kPass;
  return Step::kProgress;
}

}  // namespace sluice::generate
