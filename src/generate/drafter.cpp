// Chooses between sources of draft tokens and counts how many are accepted.
#include "generate/drafter.h"

#include <algorithm>

namespace sluice::generate {
namespace {

// How many tokens come before one that is not in the vocabulary, such as a picture's.
template <typename Known>
size_t known_tokens(std::span<const Token> tokens, const Known& known) {
  return static_cast<size_t>(std::find_if_not(tokens.begin(), tokens.end(), known) -
                             tokens.begin());
}

}  // namespace

Drafter::Drafter(session::Session& target, const Drafts& options)
    : target_(target), options_(options), trust_(target.context().draft_state.trust) {
  trust_.settle();
}

// Keeps the acceptance statistics for the next generation.
Drafter::~Drafter() {
  target_.context().draft_state.trust = trust_;
  if (options_.model != nullptr) options_.model->end();
}

Status Drafter::start(std::span<const Token> prompt) {
  const session::MemoryPlan& plan = target_.context().plan;
  if (plan.batch.draft_max == 0 && plan.context.n_ctx > 2) {
    return error(Code::kBudgetTooSmall,
                 "no memory for draft tokens: set the draft option when loading");
  }
  const size_t most = static_cast<size_t>(plan.batch.draft_max);
  tokens_.resize(most);
  chance_.resize(most);
  if (options_.model != nullptr) options_.model->start(target_, most);
  SLUICE_RETURN_IF_ERROR(index_.allocate(plan.context.n_ctx));
  for (const Token token : prompt) index_.push(token);
  return {};
}

// A draft token counts as right or wrong while all before it were right, whether or not a forward
// pass checked it.
void Drafter::said(Token token) {
  ++said_;
  index_.push(token);
  const std::span<const Token> drafted = all_drafts();
  if (judged_ >= drafted.size()) return;
  const bool right = drafted[judged_] == token;
  if (by_model_) {
    options_.model->judge(judged_, right);
  } else if (match_ > 0) {
    trust_.note(draft::AcceptanceStats::of_match(match_ + static_cast<int32_t>(judged_)), right);
  }
  judged_ = right ? judged_ + 1 : drafted.size();
}

void Drafter::begin(std::span<const Token> upcoming, int32_t most) {
  if (options_.most >= 0) most = std::min(most, options_.most);
  const size_t room = std::min(static_cast<size_t>(std::max(most, 0)), tokens_.size());
  n_ = checked_ = judged_ = 0;
  match_ = 0;
  by_model_ = false;
  const draft::Setting setting{.upcoming = static_cast<int32_t>(upcoming.size()),
                               .beside = target_.batch_share().sessions - 1,
                               .redone = target_.context().plan.kv.shape.recurrent()};
  if (options_.source != nullptr) {
    take_from_source(room);
  } else if (target_.context().costs.known(1) || setting.beside > 0) {
    draft::Choice best;
    if (options_.ngram) best = draft_by_ngram(room, setting);
    if (options_.model != nullptr && room > 0) {
      by_model_ = options_.model->begin(upcoming, setting, room, said_, best.rate);
    }
  }
  said_ = 0;
}

void Drafter::take_from_source(size_t most) {
  n_ = std::min(options_.source->propose(index_.tokens(), {tokens_.data(), most}), most);
  n_ = known_tokens({tokens_.data(), n_}, [this](Token t) { return known(t); });
  checked_ = n_;
}

// Every right draft token makes the match one longer, so the i-th has the chance of a match of
// match_ + i.
draft::Choice Drafter::draft_by_ngram(size_t most, const draft::Setting& setting) {
  match_ = index_.propose(tokens_);
  if (match_ == 0) return {};
  n_ = known_tokens(tokens_, [this](Token t) { return known(t); });
  if (n_ == 0) return {};
  for (size_t i = 0; i < n_; ++i) {
    chance_[i] = trust_.chance(draft::AcceptanceStats::of_match(match_ + static_cast<int32_t>(i)));
  }
  const draft::Choice best =
      draft::best_length(target_.context().costs, {chance_.data(), std::min(n_, most)}, setting);
  checked_ = static_cast<size_t>(best.length);
  return best;
}

Step Drafter::step(int32_t max_ops) {
  if (!by_model_) return Step::kDone;
  const Step step = options_.model->step(max_ops);
  if (step == Step::kDone) checked_ = options_.model->checked();
  return step;
}

void Drafter::cancel() {
  if (by_model_) options_.model->cancel();
}

}  // namespace sluice::generate
