#include "generate/model_drafts.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "sample/sampler.h"

namespace sluice::generate {

void ModelDrafts::start_with(session::Session& target, const draft::DraftState& known,
                             size_t most) {
  target_ = &target;
  known_ = known;
  known_.trust.settle();
  tokens_.resize(most);
  level_.resize(most);
  chance_.resize(most);
}

bool ModelDrafts::pays(int32_t said, double rate) {
  const draft::Choice choice = known_.attempts.plan(target_->context().costs, known_.trust,
                                                    {chance_.data(), max_}, setting_, said);
  return choice.length > 0 && choice.rate > rate;
}

// The best number of draft tokens to check, of the first n in chance_.
size_t ModelDrafts::wanted(size_t n) const {
  return static_cast<size_t>(
      draft::best_length(target_->context().costs, {chance_.data(), n}, setting_).length);
}

void ModelDrafts::take_draft() {
  const double start = monotonic_ms();
  computing_ = false;
  const auto best = sample::top_logprobs(logits(), 1, 0);
  const Token token = best[0].token;
  if (token < 0 || token >= target_->context().program.hp.n_vocab) return;
  tokens_[n_] = token;
  level_[n_] =
      draft::AcceptanceStats::of_probability(std::exp(static_cast<double>(best[0].logprob)));
  chance_[n_] = known_.trust.chance(level_[n_]);
  ++n_;
  const double ms = monotonic_ms() - start;
  taking_ms_ = taking_ms_ == 0 ? ms : taking_ms_ + (ms - taking_ms_) / 4;
  if (n_ == max_) return;
  std::fill(chance_.begin() + static_cast<std::ptrdiff_t>(n_), chance_.end(),
            known_.trust.chance(draft::AcceptanceStats::kAny));
  if (wanted(max_) > n_) computing_ = go_on(token);
}

Step ModelDrafts::step(int32_t max_ops) {
  if (!computing_) return Step::kDone;
  const Step step = compute(max_ops);
  if (step != Step::kDone) return step;
  take_draft();
  if (computing_) return Step::kProgress;
  setting_.setup_ms = setting_.each_ms = 0;  // drafting has been paid for; only checking counts now
  checked_ = wanted(n_);
  return Step::kDone;
}

void ModelDrafts::cancel() {
  if (computing_) abandon();
  computing_ = false;
}

}  // namespace sluice::generate
