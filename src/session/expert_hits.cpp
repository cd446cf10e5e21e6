// Adds up the units of a plan: what every token reads, and what its experts would take.
#include "session/expert_hits.h"

#include "session/engine.h"

namespace sluice::session {

StreamedBytes streamed_bytes(const Inspection& found) {
  const auto& moe = found.program.hp.moe;
  const int32_t at = found.program.head;
  const model::Mat* head = at >= 0 ? &found.program.mats[static_cast<size_t>(at)] : nullptr;
  const int32_t head_item = at >= 0 ? found.plan.items.mat[static_cast<size_t>(at)] : -1;
  StreamedBytes out;
  double pinned = 0, all = 0;  // of experts
  for (const residency::Unit& u : found.plan.weights.units) {
    const auto bytes = static_cast<double>(u.bytes);
    const bool clustered = head != nullptr && head->expert && u.matrix == head_item;
    if (u.kind == residency::MatrixKind::kExpert && !clustered) {
      all += bytes;
      if (u.pinned) pinned += bytes;
    } else if (!u.pinned && u.kind != residency::MatrixKind::kEmbedding) {
      out.dense += clustered ? head->share * bytes : bytes;
    }
  }
  if (all == 0) return out;
  out.in_memory = pinned / all;
  out.experts = all;
  if (moe.n_expert > 0) {
    out.experts *= static_cast<double>(moe.n_expert_used) / static_cast<double>(moe.n_expert);
  }
  return out;
}

}  // namespace sluice::session
