// Layers that are left out where the caller asks for less than the whole model: a layer adds to the
// residual stream, so one whose addition changes little may be absent. `sluice convert --calibrate`
// measures what each one's absence does and writes it into the file (gguf/layer_importance.h).
#pragma once

#include <vector>

#include "gguf/gguf.h"
#include "model/program.h"

namespace sluice::model {

// Layers that may be absent: neither the first two nor the last two, nor one whose keys and values
// others read; none of a model that does not read from left to right.
[[nodiscard]] std::vector<int32_t> skippable_layers(const Program& program);

// The least important `ratio` of the skippable layers (0: none, 1: all of them), in ascending
// order. kInvalidArgument for a ratio out of range, or where the file does not rank its layers.
[[nodiscard]] Result<std::vector<int32_t>> layers_to_skip(const gguf::Header& header,
                                                          const Program& program, double ratio);

}  // namespace sluice::model
