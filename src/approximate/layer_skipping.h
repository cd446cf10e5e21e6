// Layer skipping, an approximate mode: layers add to the residual stream, so a layer whose addition
// changes little can be skipped. `sluice convert --calibrate` measures the effect of skipping each
// layer and writes it into the file (gguf/layer_importance.h).
#pragma once

#include <vector>

#include "gguf/gguf.h"
#include "model/program.h"

namespace sluice::approximate {

// Layers that can be skipped: not the first two, nor the last two, nor one whose KV cache another
// layer reads. None if the model is not causal.
[[nodiscard]] std::vector<int32_t> skippable_layers(const model::Program& program);

// The least important `ratio` of the skippable layers (0: none, 1: all of them), ascending. Errors:
// kInvalidArgument for a ratio out of range, or if the file does not rank its layers.
[[nodiscard]] Result<std::vector<int32_t>> layers_to_skip(const gguf::Header& header,
                                                          const model::Program& program,
                                                          double ratio);

}  // namespace sluice::approximate
