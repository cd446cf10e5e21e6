// Takes the finest level whose work stays within the limit.
#include "measure/sensitivity_trials.h"

#include <algorithm>
#include <map>

#include "convert/quantized_source.h"
#include "convert/types.h"
#include "measure/text_chunks.h"

namespace sluice::measure {
namespace {

using convert::Probe;
using T = gguf::TensorType;

constexpr double kMaxWork = 3e12;  // multiplications of all probes together

enum class How : uint8_t { kTypes, kTwo, kOne, kGroups };
struct Level {
  How how;
  size_t tokens;
};
// From finest to coarsest. The first that stays within kMaxWork is used, else the last.
constexpr Level kLevels[] = {{How::kTypes, 2048}, {How::kTypes, 1024}, {How::kTypes, 512},
                             {How::kTwo, 512},    {How::kOne, 512},    {How::kOne, 256},
                             {How::kGroups, 256}, {How::kGroups, 128}, {How::kGroups, 64}};

bool is_head(const model::Program& program, std::string_view tensor) {
  return program.head >= 0 && program.head != program.embedding &&
         program.mats[static_cast<size_t>(program.head)].name == tensor;
}

// Returns the first of `wanted` that `types` has, else the first type.
T nearest(const std::vector<T>& types, std::initializer_list<T> wanted) {
  for (const T type : wanted) {
    if (std::find(types.begin(), types.end(), type) != types.end()) return type;
  }
  return types.front();
}
T coarse(const std::vector<T>& types) {
  return nearest(types, {T::kQ4_0, T::kQ3_K});
}

std::vector<Probe> probes_of(const gguf::Header& header, const convert::TypeFilter& filter,
                             How how) {
  std::vector<Probe> out;
  std::map<std::string, Probe, std::less<>> kinds;
  std::map<int32_t, Probe> layers;
  for (const gguf::Tensor& t : header.tensors) {
    const std::vector<T> types = convert::types_for(t, filter);
    if (types.empty()) continue;
    const std::string name(t.name);
    const int32_t layer = convert::layer_of(t.name);
    const auto put = [&name](Probe* probe, T type) {
      probe->tensors.push_back(name);
      probe->types.push_back(type);
    };
    const auto alone = [&](T type) { put(&out.emplace_back(), type); };
    if (how == How::kTypes) {
      for (const T type : types) alone(type);
    } else if (how == How::kTwo) {
      const T fine = nearest(types, {T::kQ8_0, T::kQ6_K, T::kQ5_1});
      alone(coarse(types));
      if (fine != coarse(types)) alone(fine);
    } else if (how == How::kOne || layer < 0) {
      alone(coarse(types));
    } else {
      put(&kinds[std::string(convert::kind_of(name))], coarse(types));
      put(&layers[layer], coarse(types));
    }
  }
  for (auto& [kind, probe] : kinds) out.push_back(std::move(probe));
  for (auto& [layer, probe] : layers) out.push_back(std::move(probe));
  return out;
}

}  // namespace

int32_t first_layer(const model::Program& program, const std::vector<std::string>& tensors) {
  auto first = static_cast<int32_t>(program.hp.n_layer);
  for (const std::string& name : tensors) {
    if (!is_head(program, name)) first = std::min(first, convert::layer_of(name));
  }
  return first;
}

double work_from(const model::Program& program, int32_t layer) {
  return work_between(program, std::max(0, layer), static_cast<int32_t>(program.hp.n_layer));
}

TrialPlan plan_probes(const gguf::Header& header, const convert::TypeFilter& filter,
                      const model::Program& program) {
  TrialPlan plan;
  for (const Level& level : kLevels) {
    constexpr const char* kNames[] = {"types", "tensor", "tensor", "kind and layer"};
    plan.probes = probes_of(header, filter, level.how);
    plan.how = kNames[static_cast<size_t>(level.how)];
    plan.tokens = level.tokens;
    double work = 0;
    for (const Probe& p : plan.probes) work += work_from(program, first_layer(program, p.tensors));
    if (work * static_cast<double>(level.tokens) <= kMaxWork) break;
  }
  return plan;
}

}  // namespace sluice::measure
