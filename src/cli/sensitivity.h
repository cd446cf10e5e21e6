// What a model's answers lose for each tensor's loss, for `convert --target-size`: the model is run
// with a tensor, or several, as another type and all else as it is, over a text given or of its
// own, and the next token's distribution is compared with the whole model's (KL, nats a token; of a
// model that gives embeddings the share of their power that changes). The residual stream before
// each layer is kept, so that only what follows a tensor is run again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convert/imatrix.h"
#include "convert/sensitivity.h"
#include "native/model_file.h"

namespace sluice::cli {

struct SensitivityOptions {
  std::string model, cache_dir;
  std::string text_file;  // empty: what the model writes
  uint64_t memory_budget = 0;
  int threads = 0;
  const convert::Imatrix* importance = nullptr;
  std::function<void(double share)> on_progress;  // of the work
};

struct MeasuredSensitivity {
  std::vector<convert::Probe> probes;
  const char* how = "";           // "types", "tensor", "kind and layer"
  size_t tokens = 0;              // of the text
  size_t positions = 0;           // whose answers were compared
  bool calibration_text = false;  // the model's
};

// Errors: those of reading; those of opening and running the model; kUnsupportedArchitecture for
// one whose answers cannot be compared so.
[[nodiscard]] Result<MeasuredSensitivity> measure_sensitivity(const SensitivityOptions& options);

// Whether such an error says that this model cannot be measured, and not that nothing can be read.
[[nodiscard]] bool says_unmeasurable(const Status& status);

}  // namespace sluice::cli
