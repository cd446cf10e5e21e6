#include "measure/hessian_collector.h"

namespace sluice::measure {
namespace {

uint64_t bytes_of(const gguf::Header& header, const HessianPlan& plan) {
  uint64_t bytes = 0;
  for (const gguf::Tensor& tensor : header.tensors) {
    if (!convert::is_quantizable(tensor)) continue;
    const uint64_t matrices = plan.by_expert ? tensor.ne[2] : 1;
    bytes += matrices * convert::Hessian::bytes_for(tensor.ne[0], plan.span);
  }
  return bytes;
}

}  // namespace

Result<HessianPlan> plan_hessians(const gguf::Header& header, uint64_t budget) {
  HessianPlan plan;
  for (const bool by_expert : {true, false}) {
    plan.by_expert = by_expert;
    for (plan.span = convert::kMaxSpan; plan.span >= convert::kMinSpan; plan.span /= 2) {
      plan.bytes = bytes_of(header, plan);
      if (plan.bytes <= budget / 2) return plan;
    }
  }
  return error(Code::kBudgetTooSmall, "--gptq needs --memory-budget of at least %llu bytes",
               static_cast<unsigned long long>(2 * plan.bytes));
}

}  // namespace sluice::measure
