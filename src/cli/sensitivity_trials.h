// Which tensors are tried as which types, and how much of a text, so that it takes bounded work:
// for a small model every type of every tensor; for a larger one two types, or one, of each; else
// all tensors of a kind at once, and all of a layer.
#pragma once

#include <string>
#include <vector>

#include "convert/sensitivity.h"
#include "model/program.h"

namespace sluice::cli {

struct TrialPlan {
  std::vector<convert::Probe> probes;  // changes are to be measured
  const char* how = "";
  size_t tokens = 0;
};

// The first layer that any of these tensors is in, -1 where one is in none; n_layer: all are behind
// the layers.
[[nodiscard]] int32_t first_layer(const model::Program& program,
                                  const std::vector<std::string>& tensors);
// Multiplications that a token costs from there on, without the head.
[[nodiscard]] double work_from(const model::Program& program, int32_t layer);

[[nodiscard]] TrialPlan plan_probes(const gguf::Header& header, const model::Program& program);

}  // namespace sluice::cli
