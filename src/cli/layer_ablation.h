// Layer ablation: what skipping one layer changes.
#pragma once

#include <limits>
#include <vector>

namespace sluice::cli {

struct LayerAblation {
  // Cosine between the layer's input and output, mean over the tokens; NaN: not measured.
  double cosine = std::numeric_limits<double>::quiet_NaN();
  // KL divergence of the next token's distribution without this layer from the full model's, in
  // nats; mean over sampled positions. Less than 0: the layer is never skipped.
  double divergence = -1;
};

// In the file's layout (gguf/layer_importance.h).
[[nodiscard]] std::vector<float> importance_of(const std::vector<LayerAblation>& layers);

}  // namespace sluice::cli
