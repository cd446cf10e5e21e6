// Estimates the cost of drafting, chooses the part of the text that the draft model reads, and runs
// its forward passes.
#include "generate/draft_model.h"

#include <algorithm>

namespace sluice::generate {
namespace {

// A draft model that has fallen behind skips the middle of the text. It reads the first tokens
// (attention sinks) and as many of the last ones as cost kTailPasses forward passes of the target.
constexpr size_t kBeginning = 4, kMinTail = 16;
constexpr double kTailPasses = 2;
constexpr double kLatePasses = 16;  // passes over which that cost is spread

}  // namespace

void DraftModel::start(session::Session& target, size_t most) {
  start_with(target, session_.context().draft_state, most);
  forget();
  text_.reserve(static_cast<size_t>(target.context().plan.context.n_ctx) + 1);
  skipped_ = 0;
  given_up_ = false;
}

void DraftModel::end() {
  cancel();
  if (target_ != nullptr) session_.context().draft_state = known_;
  target_ = nullptr;
}

// Sets text_ to the tokens that the session should hold. Returns how many of them are missing.
size_t DraftModel::take_text(std::span<const Token> upcoming) {
  const std::span<const Token> held = target_->tokens();
  if (held.size() < kBeginning + skipped_) skipped_ = 0;  // the target was rewound that far
  const size_t head = skipped_ > 0 ? kBeginning : 0;
  const std::span<const Token> tail = held.subspan(head + skipped_);
  text_.assign(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(head));
  text_.insert(text_.end(), tail.begin(), tail.end());
  text_.insert(text_.end(), upcoming.begin(), upcoming.end());
  const std::span<const Token> known = session_.tokens();
  const auto same = std::mismatch(text_.begin(), text_.end(), known.begin(), known.end()).first;
  return std::max<size_t>(1, static_cast<size_t>(text_.end() - same));
}

// Estimates the cost of the next draft tokens and of the tokens that must be read before them.
void DraftModel::weigh(std::span<const Token> upcoming) {
  const session::SessionContext &own = session_.context(), &target = target_->context();
  const draft::BatchLatency& costs = own.costs;
  const auto weights = [](const session::SessionContext& of) {
    return static_cast<double>(of.plan.weights.total_bytes);
  };
  // Until it is measured, assume the target's speed per byte of weights.
  const double pass = target.costs.estimate(1);
  const double expected = pass * weights(own) / weights(target);
  const double unit = costs.measured() ? 1 : expected;
  constexpr size_t kMax = draft::kMaxPass;
  const auto cost = [&](size_t n) {
    const double one = unit * costs.estimate(static_cast<int32_t>(std::min(n, kMax)));
    return one * static_cast<double>(std::max(n, kMax)) / kMax;
  };
  size_t missing = take_text(upcoming);
  const size_t tail =
      std::max(kMinTail, static_cast<size_t>(kTailPasses * pass / cost(kMax) * kMax));
  const size_t room = static_cast<size_t>(own.plan.context.n_ctx), size = text_.size() + skipped_;
  if (missing > tail || text_.size() + max_ > room) {
    const size_t most = room - std::min(room, kBeginning + max_ + upcoming.size());
    const size_t kept = upcoming.size() + kBeginning + std::min(tail, most / 2);
    if (size > kept) {
      skipped_ = size - kept;
      missing = take_text(upcoming);
    }
  }
  // A prompt pass says little about the cost of a single token, so it may not raise the estimate.
  const double single = costs.known(1) ? cost(1) : std::min(cost(1), expected);
  setting_.each_ms = single + taking_ms_;
  setting_.late_ms = cost(missing) - cost(1);
  const double usual = cost(std::min<size_t>(missing, 2)) - cost(1);
  setting_.setup_ms = usual + (setting_.late_ms - usual) / kLatePasses;
}

bool DraftModel::begin(std::span<const Token> upcoming, const draft::Setting& setting, size_t most,
                       int32_t said, double rate) {
  if (given_up_) return false;
  forget();
  max_ = most;
  setting_ = setting;
  weigh(upcoming);
  if (!pays(said, rate)) return false;
  computing_ = session_.sync(text_).ok();
  given_up_ = !computing_;
  return computing_;
}

}  // namespace sluice::generate
