// Fits the early exit classifier (approximate/early_exit.h). At each layer it predicts whether the
// token that the output head would choose there is already the last layer's. Training states come
// from the whole model. They are valid for early exits too, since a layer reads nothing from later
// layers.
#pragma once

#include <cstdint>
#include <vector>

#include "approximate/early_exit.h"

namespace sluice::measure {

struct ExitValue {
  int32_t layer = 0;
  double settled = 0;  // share of the sampled positions that were settled
  // AUC: how likely a settled token scores higher than an unsettled one; 0.5: no better than
  // chance.
  double told = 0.5;
};

struct EarlyExitFit {
  std::vector<float> weights;  // in the file's layout; empty: this model has no early exit
  std::vector<ExitValue> layers;
  size_t tokens = 0;  // sampled positions per layer
};

// What was observed behind one layer, by position.
struct ObservedExit {
  std::vector<approximate::ExitFeatures> features;
  std::vector<uint8_t> settled;
};

// `seen` is by layer, empty for layers without an early exit.
[[nodiscard]] EarlyExitFit fit_exits(const std::vector<ObservedExit>& seen);

}  // namespace sluice::measure
