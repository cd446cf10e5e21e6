// Chooses which tensors are tried in which types, and on how many tokens, so that the work is
// bounded. Small models: every type of every tensor. Larger ones: two types per tensor, then one.
// The largest: all tensors of a kind at once, and all of a layer at once.
#pragma once

#include <string>
#include <vector>

#include "convert/sensitivity.h"
#include "convert/types.h"
#include "model/program.h"

namespace sluice::measure {

struct TrialPlan {
  std::vector<convert::Probe> probes;  // without measured changes
  const char* how = "";
  size_t tokens = 0;
};

// The first layer that holds one of these tensors; -1 if one is before the layers; n_layer if all
// are behind them.
[[nodiscard]] int32_t first_layer(const model::Program& program,
                                  const std::vector<std::string>& tensors);
// Multiplications per token from that layer on, without the output head.
[[nodiscard]] double work_from(const model::Program& program, int32_t layer);

[[nodiscard]] TrialPlan plan_probes(const gguf::Header& header, const convert::TypeFilter& filter,
                                    const model::Program& program);

}  // namespace sluice::measure
