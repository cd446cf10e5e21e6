// Measures a model on a text in one reading: the importance matrix (mean squares of each matrix's
// inputs), what skipping each layer changes, and the layers after which the next token is settled.
// Windows of the text go through the model layer by layer. Skipping a layer reuses the residual
// stream before it, and logits are computed for a sample of positions only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/early_exit_fit.h"
#include "cli/layer_ablation.h"
#include "convert/imatrix.h"
#include "native/model_file.h"

namespace sluice::cli {

struct Calibration {
  std::string model, text_file;
  io::OpenOptions source;
  uint64_t memory_budget = 0;
  int threads = 0;
  bool moments = false;  // also collect an importance matrix, which reads all of the text
  std::function<void(double share)> on_progress;  // share of the work done, 0 to 1
};

struct Calibrated {
  convert::Imatrix importance;
  std::vector<LayerAblation> layers;  // one per layer
  EarlyExitFit exits;
  size_t tokens = 0;    // in the text
  size_t compared = 0;  // positions at which the ablated layers were compared
};

// Errors: of reading the text, and of opening and running the model; kPromptEmpty.
[[nodiscard]] Result<Calibrated> calibrate(const Calibration& calibration);

}  // namespace sluice::cli
