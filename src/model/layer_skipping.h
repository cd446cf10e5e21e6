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

// Those that `quality`, from 1 (none) to 0 (all that may), leaves out, ascending: the least
// important ones. kInvalidArgument for another quality, or where the file has no numbers.
[[nodiscard]] Result<std::vector<int32_t>> layers_to_skip(const gguf::Header& header,
                                                          const Program& program, double quality);

}  // namespace sluice::model
