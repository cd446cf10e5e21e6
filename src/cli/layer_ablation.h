// What each layer of a model is worth: what its absence changes.
#pragma once

#include <limits>
#include <vector>

namespace sluice::cli {

struct LayerAblation {
  // Mean over the tokens; NaN: not known. Of what the layer reads and what it leaves.
  double cosine = std::numeric_limits<double>::quiet_NaN();
  // Of the next token's distribution with all layers from the one without this layer, mean over a
  // sample of positions, in nats; less than 0: the layer always stays.
  double divergence = -1;
};

// As files have it (gguf/layer_importance.h).
[[nodiscard]] std::vector<float> importance_of(const std::vector<LayerAblation>& layers);

}  // namespace sluice::cli
