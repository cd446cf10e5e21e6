// Behind which layers tokens may leave, and what tells it (model/early_exit.h): the head tells of a
// layer's state whether its next token is the last layer's. States are those of the whole model,
// which are what they would be were all tokens to leave there: a layer reads nothing of later ones.
#pragma once

#include <cstdint>
#include <vector>

#include "session/early_exit.h"

namespace sluice::cli {

struct ExitValue {
  int32_t layer = 0;
  double settled = 0;  // share of the positions that were looked at
  // How likely a settled token has a greater score than one that is not; 0.5: nothing is told.
  double told = 0.5;
};

struct EarlyExitFit {
  std::vector<float> weights;  // as files have it; empty: no token of this model may leave
  std::vector<ExitValue> layers;
  size_t tokens = 0;  // that were looked at
};

// What was seen behind a layer where tokens may leave, by position.
struct ObservedExit {
  std::vector<session::ExitFeatures> features;
  std::vector<uint8_t> settled;
};

// By layer; nothing was seen where nobody may leave.
[[nodiscard]] EarlyExitFit fit_exits(const std::vector<ObservedExit>& seen);

}  // namespace sluice::cli
