// Experts of a mixture in memory: which missing one is pinned, and in place of which. An expert
// that is used now is worth much if its layer uses the same ones again soon, and little if choices
// are random. Then it streams through the ring as before, and what is in memory stays.
#include <algorithm>

#include "residency/residency.h"

namespace sluice::residency {
namespace {

// How much more an expert must be worth than the one whose memory it takes. Without a margin,
// experts of equal worth would displace each other, and each pinned one is packed anew.
constexpr double kMargin = 1.125;
constexpr double kMarginOfLayers = 1.5;  // between layers

#if defined(__wasm__)
constexpr bool kFixesExperts = false;
#else
constexpr bool kFixesExperts = true;
#endif

bool uses_expert(std::span<const ExpertUse> used, uint32_t expert) {
  const auto at = std::lower_bound(used.begin(), used.end(), expert,
                                   [](const ExpertUse& use, uint32_t e) { return use.expert < e; });
  return at != used.end() && at->expert == expert;
}

uint64_t missing_bytes(const Residency& residency, const Expert& expert) {
  uint64_t bytes = 0;
  for (uint32_t u = expert.first_unit; u < expert.end_unit; ++u) {
    if (!residency.ready(u)) bytes += residency.plan().units[u].bytes;
  }
  return bytes;
}

}  // namespace

uint32_t Plan::expert_of(int32_t matrix) const {
  const auto after =
      std::upper_bound(experts.begin(), experts.end(), first_unit_of(matrix),
                       [](uint32_t unit, const Expert& e) { return unit < e.first_unit; });
  return static_cast<uint32_t>(after - experts.begin() - 1);
}

bool Residency::may_leave(const Expert& expert) const {
  for (uint32_t u = expert.first_unit; u < expert.end_unit; ++u) {
    const bool being_read = state_[u] == UnitState::kLoading || state_[u] == UnitState::kArrived;
    if (!plan_.units[u].pinned || being_read) return false;
  }
  return true;
}

int32_t Residency::least_worth(uint32_t layer, const Expert& wanted,
                               std::span<const ExpertUse> used) const {
  int32_t least = -1;
  double least_value = 0;
  const auto [first, end] = values_.of_layer(layer);
  for (uint32_t e = first; e < end; ++e) {
    const Expert& expert = plan_.experts[e];
    if (expert.form != wanted.form || uses_expert(used, e) || !may_leave(expert)) continue;
    const double value = values_.value(e);
    if (least >= 0 && value >= least_value) continue;
    least = static_cast<int32_t>(e);
    least_value = value;
  }
  return least;
}

void Residency::take_over(const Expert& from, const Expert& to) {
  for (uint32_t i = 0; i < to.end_unit - to.first_unit; ++i) {
    const uint32_t old = from.first_unit + i, now = to.first_unit + i;
    if (plan_.units[now].pinned) continue;  // a part that the plan pinned alone
    if (slot_of_[now] >= 0) release_slot(static_cast<size_t>(slot_of_[now]));
    if (state_[old] == UnitState::kReady) ++pins_absent_;
    state_[old] = UnitState::kAbsent;
    packed_[old] = 0;
    pins_[now].swap(pins_[old]);
    std::swap(plan_.units[now].pinned, plan_.units[old].pinned);
  }
}

void Residency::admit(uint32_t expert, int32_t n_tokens, std::span<const ExpertUse> used) {
  const Expert& wanted = plan_.experts[expert];
  bool pinned = true;
  for (uint32_t u = wanted.first_unit; u < wanted.end_unit; ++u) {
    if (state_[u] == UnitState::kLoading || state_[u] == UnitState::kArrived) return;
    pinned = pinned && plan_.units[u].pinned;
  }
  if (pinned) return;
  const double value = values_.value(expert);
  // The cheapest of its layer and of one other, in turns. A prompt uses most experts of a layer: it
  // would take all memory of the layers that come later.
  int32_t victim = least_worth(wanted.layer, wanted, used);
  double worth = victim < 0 ? value : kMargin * values_.value(static_cast<uint32_t>(victim));
  if (n_tokens <= ExpertValues::kMaxDecodeBatch && values_.layers() > 1) {
    other_layer_ = (other_layer_ + 1) % values_.layers();
    if (other_layer_ == wanted.layer) other_layer_ = (other_layer_ + 1) % values_.layers();
    const int32_t other = least_worth(other_layer_, wanted, {});
    const double price =
        other < 0 ? value : kMarginOfLayers * values_.value(static_cast<uint32_t>(other));
    if (price < value && price < worth) {
      worth = price;
      victim = other;
    }
  }
  if (worth < value) take_over(plan_.experts[static_cast<size_t>(victim)], wanted);
}

void Residency::use_experts(int32_t n_tokens, std::span<const ExpertUse> used) {
  if (used.empty()) return;
  values_.note(plan_.experts[used[0].expert].layer, n_tokens, used);
  for (const ExpertUse& use : used) {
    const uint64_t missing = missing_bytes(*this, plan_.experts[use.expert]);
    ++(missing == 0 ? counts_.expert_hits : counts_.expert_misses);
    counts_.expert_missed_bytes += missing;
    if (missing > 0 && !(kFixesExperts && fixed_experts_)) admit(use.expert, n_tokens, used);
  }
}

void Residency::keep_cached(Plan& plan) const {
  if (plan.experts.size() != plan_.experts.size()) return;
  const auto held = [&](const Expert& e) {
    for (uint32_t u = e.first_unit; u < e.end_unit; ++u) {
      if (held_unit(plan.units[u]) < 0) return false;
    }
    return true;
  };
  const auto units_of = [&](const Expert& e) {
    return std::span(plan.units).subspan(e.first_unit, e.end_unit - e.first_unit);
  };
  const auto pinned = [&](const Expert& e) {
    const auto units = units_of(e);
    return std::all_of(units.begin(), units.end(), [](const Unit& unit) { return unit.pinned; });
  };
  const auto free = [&](const Expert& e) {
    const auto units = units_of(e);
    return std::none_of(units.begin(), units.end(), [](const Unit& unit) { return unit.pinned; });
  };
  size_t from = 0;  // the next expert that the plan pins and that is not in memory
  for (const Expert& e : plan.experts) {
    if (!free(e) || !held(e)) continue;
    for (; from < plan.experts.size(); ++from) {
      const Expert& other = plan.experts[from];
      if (other.form == e.form && pinned(other) && !held(other)) break;
    }
    if (from == plan.experts.size()) return;
    for (uint32_t i = 0; i < e.end_unit - e.first_unit; ++i) {
      plan.units[e.first_unit + i].pinned = true;
      plan.units[plan.experts[from].first_unit + i].pinned = false;
    }
  }
}

}  // namespace sluice::residency
