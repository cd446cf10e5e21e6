// Guesses, their judging, and the draft model's passes.
#include "generate/drafter.h"

#include <algorithm>
#include <cmath>

#include "sample/sampler.h"

namespace sluice::generate {
namespace {

constexpr int kFirstTrust = 6;     // guesses that it is taken to have had right
constexpr int32_t kAskAgain = 64;  // tokens after which a model that guessed badly gets a chance

}  // namespace

// A model that was chosen for it is asked until it has guessed badly.
Drafter::Drafter(session::Session& target, const Drafts& options)
    : target_(target), options_(options) {
  for (int i = 0; i < kFirstTrust; ++i) model_trust_.note(0, true);
}

Status Drafter::start(std::span<const Token> prompt) {
  const session::MemoryPlan& plan = target_.engine().plan();
  if (plan.draft_max == 0 && plan.n_ctx > 2) {
    return error(Code::kBudgetTooSmall,
                 "the model was loaded without room for drafts: ask for it on loading");
  }
  const size_t most = static_cast<size_t>(plan.draft_max);
  guess_.resize(most);
  level_.resize(most);
  chance_.resize(most);
  setting_.redone = plan.kv_shape.recurrent();
  if (options_.model != nullptr) {
    text_.reserve(static_cast<size_t>(plan.n_ctx) + 1);
    return {};
  }
  SLUICE_RETURN_IF_ERROR(index_.allocate(plan.n_ctx));
  for (const Token token : prompt) index_.push(token);
  return {};
}

// A guess counts as right or wrong while all before it were right, whether a pass checked it or
// not.
void Drafter::said(Token token) {
  if (judged_ < n_) {
    const bool right = guess_[judged_] == token;
    trust_.note(level_[judged_], right);
    if (options_.model != nullptr) model_trust_.note(0, right);
    judged_ = right ? judged_ + 1 : n_;
  }
  if (options_.model == nullptr) index_.push(token);
}

void Drafter::begin(std::span<const Token> upcoming, int32_t most) {
  if (options_.most >= 0) most = std::min(most, options_.most);
  most_ = std::min(static_cast<size_t>(std::max(most, 0)), guess_.size());
  n_ = checked_ = judged_ = 0;
  setting_.upcoming = static_cast<int32_t>(upcoming.size());
  if (options_.model != nullptr) {
    begin_model(upcoming);
  } else if (options_.source != nullptr) {
    n_ = std::min(options_.source->guess(index_.tokens(), {guess_.data(), most_}), most_);
    const auto end = guess_.begin() + static_cast<std::ptrdiff_t>(n_);
    const auto foreign = [this](Token t) { return !known(t); };
    n_ = static_cast<size_t>(std::find_if(guess_.begin(), end, foreign) - guess_.begin());
    std::fill_n(level_.begin(), n_, 0);
    checked_ = n_;
  } else {
    guess_by_ngram();
  }
}

// Of the guesses made so far and, from there on, as many more of the kind that chance_ tells.
int32_t Drafter::wanted(size_t n, double each_ms) {
  setting_.each_ms = each_ms;
  return draft::best_length(target_.engine().costs(), {chance_.data(), std::min(n, most_)},
                            setting_);
}

void Drafter::add(Token token, int32_t level) {
  guess_[n_] = token;
  level_[n_] = level;
  chance_[n_++] = trust_.chance(level);
}

// Each guess that is right makes the match longer.
void Drafter::guess_by_ngram() {
  const int32_t match = index_.guess(guess_);
  if (match == 0) return;
  for (size_t i = 0; i < guess_.size(); ++i) {
    add(guess_[i], draft::Trust::of_match(match + static_cast<int32_t>(i)));
  }
  checked_ = static_cast<size_t>(wanted(n_, 0));
}

void Drafter::begin_model(std::span<const Token> upcoming) {
  if (given_up_ || most_ == 0) return;
  std::fill(chance_.begin(), chance_.end(), model_trust_.chance(0));
  const bool again = ++idle_ >= kAskAgain;
  if (wanted(most_, options_.model->engine().costs().estimate(1)) == 0) {
    if (!again) return;
    most_ = 1;
  }
  idle_ = 0;
  const std::span<const Token> held = target_.tokens();
  text_.assign(held.begin(), held.end());
  text_.insert(text_.end(), upcoming.begin(), upcoming.end());
  computing_ = options_.model->sync(text_).ok();
  given_up_ = !computing_;  // its context is shorter
}

void Drafter::take_from_model() {
  computing_ = false;
  const auto best = sample::top_logprobs(options_.model->logits(), 1, 0);
  const Token token = best[0].token;
  if (!known(token)) return;
  add(token, draft::Trust::of_probability(std::exp(static_cast<double>(best[0].logprob))));
  if (n_ == most_) return;
  std::fill(chance_.begin() + static_cast<std::ptrdiff_t>(n_), chance_.end(),
            model_trust_.chance(0));
  const double each_ms = options_.model->engine().costs().estimate(1);
  if (static_cast<size_t>(wanted(most_, each_ms)) <= n_) return;
  computing_ = options_.model->begin({&token, 1}).ok();
}

Step Drafter::step(int32_t max_ops) {
  if (!computing_) return Step::kDone;
  const Step step = options_.model->step(max_ops);
  if (step != Step::kDone) return step;
  take_from_model();
  if (computing_) return Step::kProgress;
  // What was guessed is paid for.
  checked_ = most_ == 1 ? n_ : static_cast<size_t>(wanted(n_, 0));
  return Step::kDone;
}

void Drafter::cancel() {
  if (computing_) options_.model->cancel();
  computing_ = false;
}

}  // namespace sluice::generate
