// Probes of several tensors are split by iterative proportional fitting: tensor slopes are scaled
// until their sums match all measured changes.
#include "convert/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "convert/types.h"

namespace sluice::convert {
namespace {

using Known = Sensitivity::Known;

constexpr int kRounds = 50;

struct Member {
  size_t tensor;
  double error;
};
struct Group {
  std::vector<Member> members;
  double change;
};

struct Mean {
  double sum = 0, n = 0;
  void add(double x) {
    sum += x;
    n += 1;
  }
};

// Slope per tensor; 0 if no group contains it.
std::vector<double> fitted(const std::vector<Group>& groups, size_t n_tensors) {
  std::vector<double> slope(n_tensors, 0), scale(n_tensors), count(n_tensors);
  for (const Group& g : groups) {
    for (const Member& m : g.members) slope[m.tensor] = 1;
  }
  for (int round = 0; round < kRounds; ++round) {
    std::fill(scale.begin(), scale.end(), 0);
    std::fill(count.begin(), count.end(), 0);
    for (const Group& g : groups) {
      double sum = 0;
      for (const Member& m : g.members) sum += slope[m.tensor] * m.error;
      if (sum <= 0) continue;
      for (const Member& m : g.members) {
        scale[m.tensor] += std::log(g.change / sum);
        count[m.tensor] += 1;
      }
    }
    for (size_t i = 0; i < n_tensors; ++i) {
      if (count[i] > 0) slope[i] *= std::exp(scale[i] / count[i]);
    }
  }
  return slope;
}

}  // namespace

const char* name_of(Known known) {
  constexpr const char* kNames[] = {"", "kind", "together", "alone"};
  return kNames[static_cast<size_t>(known)];
}

std::string_view kind_of(std::string_view tensor) {
  if (layer_of(tensor) < 0) return tensor;
  return tensor.substr(tensor.find('.', tensor.find('.') + 1) + 1);
}

double Sensitivity::change(gguf::TensorType type, double error) const {
  const auto found = measured_.find(type);
  return found != measured_.end() ? found->second : rounding_ + slope_ * error;
}

std::vector<Sensitivity> sensitivities_of(const gguf::Header& header,
                                          const std::vector<ErrorsByType>& errors,
                                          const std::vector<Probe>& probes) {
  const size_t n = header.tensors.size();
  std::map<std::string_view, size_t> places;
  for (size_t i = 0; i < n; ++i) places[header.tensors[i].name] = i;
  std::vector<Sensitivity> out(n);
  std::vector<std::vector<std::pair<double, double>>> points(n);  // (error, change)
  std::vector<Group> groups;
  for (const Probe& probe : probes) {
    if (!(probe.change > 0)) continue;
    Group group{{}, probe.change};
    for (size_t i = 0; i < probe.tensors.size(); ++i) {
      const auto place = places.find(probe.tensors[i]);
      if (place == places.end()) continue;
      const auto error = errors[place->second].find(probe.types[i]);
      if (error == errors[place->second].end() || error->second <= 0) continue;
      group.members.push_back({place->second, error->second});
    }
    if (probe.tensors.size() > 1) {
      groups.push_back(std::move(group));
    } else if (!group.members.empty()) {
      const Member& m = group.members[0];
      out[m.tensor].measured_[probe.types[0]] = probe.change;
      points[m.tensor].emplace_back(m.error, probe.change);
    }
  }
  const std::vector<double> slopes = fitted(groups, n);
  std::map<std::string_view, Mean> kinds;
  Mean all;
  for (size_t i = 0; i < n; ++i) {
    Sensitivity& s = out[i];
    if (!points[i].empty()) {  // the line through the smallest and the largest error
      const auto [low, high] = std::minmax_element(points[i].begin(), points[i].end());
      s.known_ = Known::kAlone;
      s.slope_ = high->second / high->first;
      if (high->first > low->first && high->second > low->second) {
        const double slope = (high->second - low->second) / (high->first - low->first);
        const double rounding = low->second - slope * low->first;
        if (rounding > 0) {
          s.slope_ = slope;
          s.rounding_ = rounding;
        }
      }
    } else if (slopes[i] > 0) {
      s.known_ = Known::kTogether;
      s.slope_ = slopes[i];
    } else {
      continue;
    }
    kinds[kind_of(header.tensors[i].name)].add(s.slope_);
    all.add(s.slope_);
  }
  for (size_t i = 0; i < n && all.n > 0; ++i) {
    if (out[i].known_ != Known::kNot) continue;
    const auto kind = kinds.find(kind_of(header.tensors[i].name));
    const Mean& mean = kind != kinds.end() ? kind->second : all;
    out[i].known_ = Known::kOfKind;
    out[i].slope_ = mean.sum / mean.n;
  }
  return out;
}

}  // namespace sluice::convert
