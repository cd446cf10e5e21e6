// Measures a model on a text in one reading: the importance matrix (mean squares of each matrix's
// inputs), what skipping each layer changes, and the layers after which the next token is settled.
// Windows of the text go through the model layer by layer. Skipping a layer reuses the residual
// stream before it, and logits are computed for a sample of positions only.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "convert/hessian.h"
#include "convert/imatrix.h"
#include "measure/early_exit_fit.h"
#include "native/model_file.h"

namespace sluice::measure {

struct CalibrationOptions {
  std::string model;
  io::OpenOptions source;
  std::string text;
  uint64_t memory_budget = 0;
  int threads = 0;
  bool moments = false;   // also collect an importance matrix, which reads all of the text
  bool hessians = false;  // and second moments, which take up to half of the memory budget
  std::function<void(double share)> on_progress;  // share of the work done, 0 to 1
};

// What skipping one layer changes.
struct LayerAblation {
  // Cosine between the layer's input and output, mean over the tokens; NaN: not measured.
  double cosine = std::numeric_limits<double>::quiet_NaN();
  // KL divergence of the next token's distribution without this layer from the full model's, in
  // nats; mean over sampled positions. Less than 0: the layer is never skipped.
  double divergence = -1;
};

struct Calibration {
  convert::Imatrix importance;
  convert::Hessians hessians;
  std::vector<LayerAblation> layers;  // one per layer
  EarlyExitFit exits;
  size_t tokens = 0;    // in the text
  size_t compared = 0;  // positions at which the ablated layers were compared
};

// Errors: of opening and running the model; kPromptEmpty; kBudgetTooSmall for second moments.
[[nodiscard]] Result<Calibration> calibrate(const CalibrationOptions& options);

// The importance of layers as files store it (gguf/layer_importance.h).
[[nodiscard]] std::vector<float> importance_of(const std::vector<LayerAblation>& layers);

}  // namespace sluice::measure
