// An importance matrix of a model's own: it reads a text, and every matrix's columns are weighed by
// the second moments of what they were multiplied with, an expert's by its own tokens.
#pragma once

#include <string>

#include "base/status.h"
#include "convert/importance.h"
#include "native/model_file.h"

namespace sluice::cli {

struct Calibration {
  std::string model, text_file, cache_dir;
  uint64_t memory_budget = 0;
  int threads = 0;
};

// How a model is opened to read the text: windows of it, in passes that keep all logits.
[[nodiscard]] Result<native::LoadOptions> calibration_options(const Calibration& calibration);

// Errors: those of opening and running the model, of reading the text; kPromptEmpty.
[[nodiscard]] Result<convert::Importance> measure_importance(const Calibration& calibration);

}  // namespace sluice::cli
