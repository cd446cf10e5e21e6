// Probe weights with which some tokens of a text exit early and others do not, for tests.
#pragma once

#include <algorithm>
#include <vector>

#include "approximate/early_exit.h"
#include "fixtures_util.h"

namespace sluice::test {

// For each layer of a model opened with ExitPolicy::measures, a threshold that separates a third of
// a text's tokens from the others.
struct ExitThirds {
  static constexpr size_t kFigure = 1;
  std::vector<std::vector<float>> seen;
  std::vector<float> least;
  bool measuring = true;

  ExitThirds(Opened& opened, const std::vector<int32_t>& tokens) {
    session::Engine& engine = opened.model->engine();
    seen.resize(static_cast<size_t>(engine.program().hp.n_layer));
    engine.approximate().watch = watch();
    static_cast<void>(all_logits(opened, tokens, 1));
    opened.session->clear();
    engine.approximate().watch = {};
    for (std::vector<float>& figures : seen) {
      std::sort(figures.begin(), figures.end());
      const size_t third = figures.size() / 3;
      least.push_back(figures.empty() ? 0 : (figures[third] + figures[third + 1]) / 2);
    }
    measuring = false;
  }

  // The watch that collects their features.
  [[nodiscard]] session::ExitWatch watch() {
    return {[](void* context, int32_t layer, std::span<const float> features) {
              auto& own = *static_cast<ExitThirds*>(context);
              const auto at = static_cast<size_t>(layer);
              if (own.measuring) own.seen[at].push_back(features[kFigure]);
              return !own.measuring && features[kFigure] < own.least[at];
            },
            this};
  }
};

// The thresholds as weights of a file: about a third of the tokens exit after each layer that
// allows it.
inline std::vector<float> mixed_exits(Opened& opened, const std::vector<int32_t>& tokens) {
  std::vector<float> out;
  for (const float least : ExitThirds(opened, tokens).least) {
    std::vector<float> weights(static_cast<size_t>(approximate::kExitFeatures), 0.0f);
    weights[0] = 500 * least;
    weights[ExitThirds::kFigure] = -500;
    out.insert(out.end(), weights.begin(), weights.end());
  }
  return out;
}

}  // namespace sluice::test
