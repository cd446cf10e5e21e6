#include "residency/expert_values.h"

#include <algorithm>
#include <cmath>

namespace sluice::residency {
namespace {

constexpr double kDecay = 0.98922801319397548;  // 2^(-1 / kHalfLife)
constexpr float kPrior = 8;                     // observations that a cell's prior counts for
constexpr uint32_t kHalveCells = 4096;          // notes between two halvings of all cells
// Lower bounds of the frequency classes but the first: half octaves around the layer's mean.
constexpr float kFrequencyEdges[] = {0.297f, 0.420f, 0.595f, 0.841f, 1.189f, 1.682f, 2.378f};
// Upper bounds of the age classes but the last, in tokens.
constexpr uint32_t kAgeEdges[] = {1, 2, 3, 4, 8, 16, 32, 64};

double decayed(double uses, uint32_t tokens) {
  constexpr double kLogDecay = -0.010830424696249145;  // ln(kDecay)
  return uses * std::exp(kLogDecay * tokens);
}

}  // namespace

void ExpertValues::init(std::span<const Expert> experts) {
  experts_ = experts;
  if (records_.size() == experts.size()) return;  // another budget for the same model
  records_.assign(experts.size(), {});
  layers_ = {};
  for (uint32_t e = 0; e < experts.size(); ++e) {
    if (experts[e].layer == layers_.size()) layers_.push_back({.first = e});
    layers_.back().end = e + 1;
  }
  cells_ = {};
}

double ExpertValues::uses(uint32_t expert) const {
  const Record& r = records_[expert];
  return r.last == 0 ? 0 : decayed(r.uses, layers_[experts_[expert].layer].clock - r.last);
}

size_t ExpertValues::cell_of(uint32_t expert) const {
  const Layer& layer = layers_[experts_[expert].layer];
  const Record& r = records_[expert];
  const uint32_t age = r.last == 0 ? UINT32_MAX : layer.clock - r.last + 1;
  const float mean = layer.uses / static_cast<float>(layer.end - layer.first);
  const float frequency = static_cast<float>(uses(expert));
  size_t a = 0, f = 0;
  while (a < std::size(kAgeEdges) && age > kAgeEdges[a]) ++a;
  while (f < std::size(kFrequencyEdges) && frequency >= kFrequencyEdges[f] * mean) ++f;
  return a * kFrequencies + (frequency > 0 ? f : 0);
}

void ExpertValues::note(uint32_t l, int32_t n_tokens, std::span<const ExpertUse> used) {
  Layer& layer = layers_[l];
  if (n_tokens <= kMaxDecodeBatch) {
    const ExpertUse* next = used.data();
    for (uint32_t e = layer.first; e < layer.end; ++e) {
      Cell& cell = cells_[cell_of(e)];
      cell.seen += 1;
      if (next == used.data() + used.size() || next->expert != e) continue;
      cell.used += 1;
      ++next;
    }
    if (++notes_ == kHalveCells) {
      notes_ = 0;
      for (Cell& cell : cells_) cell = {cell.seen / 2, cell.used / 2};
    }
  }
  const auto n = static_cast<uint32_t>(n_tokens);
  // The mean decay of a use in the batch until its end.
  const double each = (1 - decayed(1, n)) / (n * (1 - kDecay));
  double sum = decayed(layer.uses, n);
  for (const ExpertUse& use : used) {
    Record& r = records_[use.expert];
    const double gain = each * use.tokens;
    r.uses = static_cast<float>(decayed(uses(use.expert), n) + gain);
    r.last = layer.clock + n;
    sum += gain;
  }
  layer.uses = static_cast<float>(sum);
  layer.clock += n;
}

double ExpertValues::value(uint32_t expert) const {
  const Cell& cell = cells_[cell_of(expert)];
  const double frequency = uses(expert) * (1 - kDecay);
  const double measured = (cell.used + kPrior * std::min(1.0, frequency)) / (cell.seen + kPrior);
  return measured + 1e-6 * frequency;  // orders the experts of a cell
}

}  // namespace sluice::residency
