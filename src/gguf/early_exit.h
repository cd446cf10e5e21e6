// The metadata key of the early-exit classifier: f32 [layers][approximate::kExitFeatures], the
// weights that predict after each layer whether the next token is settled. `sluice convert
// --calibrate` writes it.
#pragma once

#include <string_view>

namespace sluice::gguf {

inline constexpr std::string_view kExitWeights = "sluice.exit.weights";

}  // namespace sluice::gguf
