// Behind which layers tokens may leave, and what tells it (model/early_exit.h): the model reads a
// text, and the head tells of every layer's state whether its next token is the last layer's.
#pragma once

#include <vector>

#include "cli/calibrate.h"

namespace sluice::cli {

struct ExitWorth {
  int32_t layer = 0;
  double settled = 0;  // share of the tokens
  // How likely a settled token has a greater score than one that is not; 0.5: nothing is told.
  double told = 0.5;
};

struct Exits {
  std::vector<float> weights;  // as files have it; empty: no token of this model may leave
  std::vector<ExitWorth> layers;
  size_t tokens = 0;
};

// Errors: measure_importance's.
[[nodiscard]] Result<Exits> measure_exits(const Calibration& calibration);

}  // namespace sluice::cli
