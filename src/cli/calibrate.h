// What a text tells of a model, all in one reading of it: by what every matrix's columns are
// multiplied (an importance matrix), what each layer's absence does, and behind which layers the
// next token is settled. The text goes through the model layer by layer, a window of it at a time;
// a layer's absence goes on from the state before it, and what the head says is asked of a sample
// of positions.
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
  std::string model, text_file, cache_dir;
  uint64_t memory_budget = 0;
  int threads = 0;
  bool moments = false;  // whether an importance matrix is wanted, for which all of it is read
  std::function<void(double share)> on_progress;  // of the work
};

struct Calibrated {
  convert::Imatrix importance;
  std::vector<LayerAblation> layers;  // by layer
  EarlyExitFit exits;
  size_t tokens = 0;    // of the text
  size_t compared = 0;  // positions at which layers' absence was judged
};

// Errors: those of opening and running the model, of reading the text; kPromptEmpty.
[[nodiscard]] Result<Calibrated> calibrate(const Calibration& calibration);

}  // namespace sluice::cli
