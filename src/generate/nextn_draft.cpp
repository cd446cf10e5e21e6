// Estimates the cost of drafting with the MTP head and runs its passes.
#include "generate/nextn_draft.h"

#include <algorithm>

namespace sluice::generate {

void NextnDraft::start(session::Session& target, size_t most) {
  forget();
  if (!head_.start(this)) return;
  start_with(target, head_.known(), most);
}

void NextnDraft::end() {
  cancel();
  if (target_ != nullptr) head_.known() = known_;
  target_ = nullptr;
  head_.end(this);
}

// Until it is measured, assume the model's speed per byte of weights. Hidden states beside the last
// one cost a few more rows of the same weights.
void NextnDraft::weigh(int32_t missing) {
  const session::SessionContext& target = target_->context();
  const draft::BatchLatency& costs = head_.costs();
  const double expected = target.costs.estimate(1) * static_cast<double>(head_.weights()) /
                          static_cast<double>(target.plan.weights.total_bytes);
  const double unit = costs.measured() ? 1 : expected;
  const auto cost = [&](int32_t n) { return unit * costs.estimate(std::min(n, draft::kMaxPass)); };
  const double single = costs.known(1) ? cost(1) : std::min(cost(1), expected);
  setting_.each_ms = single + taking_ms_;
  setting_.late_ms = std::max(0.0, cost(missing) - cost(1));
  setting_.setup_ms = std::max(0.0, cost(std::min(missing, 2)) - cost(1));
}

bool NextnDraft::begin(std::span<const Token> upcoming, const draft::Setting& setting, size_t most,
                       int32_t said, double rate) {
  forget();
  if (target_ == nullptr || setting.beside > 0) return false;
  const int32_t missing = head_.missing(*target_, upcoming);
  if (missing == 0) return false;
  max_ = most;
  setting_ = setting;
  weigh(missing);
  if (!pays(said, rate)) return false;
  head_.begin();
  computing_ = true;
  return true;
}

}  // namespace sluice::generate
