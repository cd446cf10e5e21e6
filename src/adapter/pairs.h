// Pairs the A and B tensors of an adapter by name. Both file formats use it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "adapter/adapter.h"

namespace sluice::adapter {

inline constexpr std::string_view kA = ".lora_a", kB = ".lora_b";

// A tensor, named after the model's tensor with one of these suffixes.
using Named = std::pair<std::string, gguf::Tensor>;

// Sorts `tensors` and fills `out`. `turned`: the token embedding's `a` is transposed. Errors:
// kBadHeader, kBadShape, kUnsupportedType.
[[nodiscard]] Status pair_up(std::vector<Named> tensors, bool turned, std::vector<Pair>* out);

}  // namespace sluice::adapter
