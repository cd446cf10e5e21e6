// What each layer of a model is worth: it reads a text whole, and then again without each layer
// that may be absent.
#pragma once

#include <vector>

#include "cli/calibrate.h"

namespace sluice::cli {

struct LayerWorth {
  // Mean over the tokens; NaN: not known. Of what the layer reads and what it leaves.
  double cosine = 0;
  // Of the next token's distribution with all layers from the one without this layer, mean over the
  // tokens, in nats; less than 0: the layer always stays.
  double divergence = -1;
};

// By layer; none of a model that does not read from left to right. Errors: measure_importance's.
[[nodiscard]] Result<std::vector<LayerWorth>> measure_layers(const Calibration& calibration);

// As files have it (gguf/layer_importance.h).
[[nodiscard]] std::vector<float> importance_of(const std::vector<LayerWorth>& layers);

}  // namespace sluice::cli
