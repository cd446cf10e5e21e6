// Converts ablation results to the layer importance that files store.
#include "cli/layer_ablation.h"

#include <cfloat>

namespace sluice::cli {
std::vector<float> importance_of(const std::vector<LayerAblation>& layers) {
  std::vector<float> out;
  for (const LayerAblation& l : layers) {
    out.push_back(l.divergence < 0 ? FLT_MAX : static_cast<float>(l.divergence));
  }
  return out;
}

}  // namespace sluice::cli
