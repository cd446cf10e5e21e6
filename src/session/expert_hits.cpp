// Adds up the units of a plan: what every token reads, and what its experts would take.
#include "session/expert_hits.h"

#include "session/engine.h"

namespace sluice::session {

StreamedBytes streamed_bytes(const Inspection& found) {
  const residency::Plan& plan = found.plan.weights;
  const int32_t at = found.program.head;
  const model::Mat* head = at >= 0 ? &found.program.mats[static_cast<size_t>(at)] : nullptr;
  const int32_t head_item = at >= 0 ? found.plan.items.mat[static_cast<size_t>(at)] : -1;
  StreamedBytes out;
  double pinned = 0, all = 0;  // of experts
  auto expert = plan.experts.begin();
  for (uint32_t n = 0; n < plan.units.size(); ++n) {
    const residency::Unit& u = plan.units[n];
    const auto bytes = static_cast<double>(u.bytes);
    while (expert != plan.experts.end() && n >= expert->end_unit) ++expert;
    if (expert != plan.experts.end() && n >= expert->first_unit) {
      all += bytes;
      if (u.pinned) pinned += bytes;
    } else if (!u.pinned && u.kind != residency::MatrixKind::kEmbedding) {
      const bool clustered = head != nullptr && head->expert && u.matrix == head_item;
      out.dense += clustered ? head->share * bytes : bytes;
    }
  }
  if (all == 0) return out;
  const auto& moe = found.program.hp.moe;
  out.experts = all * static_cast<double>(moe.n_expert_used) / static_cast<double>(moe.n_expert);
  out.in_memory = pinned / all;
  return out;
}

}  // namespace sluice::session
