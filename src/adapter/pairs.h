// Tensors by name to pairs: what both forms of files have in common.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "adapter/adapter.h"

namespace sluice::adapter {

inline constexpr std::string_view kA = ".lora_a", kB = ".lora_b";

// A tensor, under the model's name with one of these endings.
using Named = std::pair<std::string, gguf::Tensor>;

// Sorts `tensors` and fills `out`; `turned` is of the embedding. Errors: kBadHeader, kBadShape,
// kUnsupportedType.
[[nodiscard]] Status pair_up(std::vector<Named> tensors, bool turned, std::vector<Pair>* out);

}  // namespace sluice::adapter
