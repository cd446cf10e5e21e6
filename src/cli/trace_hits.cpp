// Runs the engine's own cache over experts of a few bytes, whose reads complete at once. So the
// estimate follows every rule of the cache, and needs no second version of them.
#include "cli/trace_hits.h"

#include <algorithm>
#include <cmath>

#include "residency/residency.h"

namespace sluice::cli {
namespace {

using residency::ExpertUse;
using residency::Residency;

// An expert has more matrices than the stream buffer has slots. So no expert is found there.
constexpr int kMatrices = 2 * residency::kFewSlots;
constexpr uint64_t kMatrixBytes = 64, kExpertBytes = kMatrices * kMatrixBytes;

residency::Plan plan_of(const ExpertTrace& trace, int32_t layers, uint64_t capacity) {
  std::vector<residency::MatrixSpec> matrices;
  for (int32_t expert = 0; expert < layers * trace.experts; ++expert) {
    for (int i = 0; i < kMatrices; ++i) {
      residency::MatrixSpec s;
      s.kind = residency::MatrixKind::kExpert;
      s.offset = matrices.size() * kMatrixBytes;
      s.rows = 1;
      s.row_bytes = s.packed_group_bytes = kMatrixBytes;
      s.layer = expert / trace.experts;
      s.expert = expert % trace.experts;
      matrices.push_back(s);
    }
  }
  const uint64_t ring = residency::kFewSlots * kMatrixBytes;
  return residency::make_plan(matrices, 1, capacity * kExpertBytes + ring);
}

void complete_reads(Residency& cache) {
  cache.poll();
  for (residency::FillRequest& request : cache.requests().queue().ring) {
    if (request.state == residency::kFillPending) request.state = residency::kFillDone;
  }
  cache.collect();
  cache.mark_arrived_ready();
}

void read(Residency& cache, const std::vector<uint32_t>& units) {
  cache.set_demand(units);
  for (const uint32_t unit : units) {
    while (!cache.ready(unit)) complete_reads(cache);
    cache.advance_past(unit);
  }
}

void add_units(const residency::Expert& expert, std::vector<uint32_t>* units) {
  for (uint32_t u = expert.first_unit; u < expert.end_unit; ++u) units->push_back(u);
}

// One layer of a token. `used`: experts of the plan, ascending.
void use(Residency& cache, const std::vector<ExpertUse>& used) {
  std::vector<uint32_t> units;
  for (const ExpertUse& u : used) add_units(cache.plan().experts[u.expert], &units);
  cache.use_experts(1, used);
  read(cache, units);
}

// As after loading: what the plan pins is in memory.
void fill(Residency& cache) {
  for (const residency::Expert& expert : cache.plan().experts) {
    std::vector<uint32_t> units;
    if (cache.plan().units[expert.first_unit].pinned) add_units(expert, &units);
    read(cache, units);
  }
}

std::vector<ExpertUse> uses_of(const ExpertTrace& trace, size_t token, int32_t layer) {
  const int32_t* chosen = trace.at(token, layer % trace.layers);
  std::vector<ExpertUse> out;
  for (int32_t k = 0; k < trace.used && chosen[k] >= 0; ++k) {
    out.push_back({static_cast<uint32_t>(layer * trace.experts + chosen[k]), 1});
  }
  std::sort(out.begin(), out.end(),
            [](const ExpertUse& a, const ExpertUse& b) { return a.expert < b.expert; });
  return out;
}

}  // namespace

Result<double> trace_hit_rate(const ExpertTrace& trace, int32_t layers, double in_memory) {
  const auto experts = static_cast<uint64_t>(layers) * static_cast<uint64_t>(trace.experts);
  const auto capacity =
      static_cast<uint64_t>(std::llround(in_memory * static_cast<double>(experts)));
  if (capacity >= experts) return 1.0;
  Residency cache;
  SLUICE_RETURN_IF_ERROR(cache.init(plan_of(trace, layers, capacity)));
  fill(cache);
  const size_t tokens = std::min(trace.tokens(), kMaxReplayed);
  const size_t warmup = std::min(tokens / 4, kWarmup);
  uint64_t hits = 0, misses = 0;  // of the warm-up
  for (size_t t = 0; t < tokens; ++t) {
    if (t == warmup) {
      hits = cache.counts().expert_hits;
      misses = cache.counts().expert_misses;
    }
    for (int32_t layer = 0; layer < layers; ++layer) {
      const std::vector<ExpertUse> used = uses_of(trace, t, layer);
      if (!used.empty()) use(cache, used);
    }
  }
  hits = cache.counts().expert_hits - hits;
  misses = cache.counts().expert_misses - misses;
  if (hits + misses == 0) {
    return error(Code::kInvalidArgument, "the expert trace has no experts in the model's layers");
  }
  return static_cast<double>(hits) / static_cast<double>(hits + misses);
}

}  // namespace sluice::cli
