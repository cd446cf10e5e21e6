// What a file says of tokens that may leave early, by the key under which it does: f32
// [layers][model::kExitFeatures], what tells behind each layer whether the next token is settled.
// `sluice convert --calibrate` measures it.
#pragma once

#include <string_view>

namespace sluice::gguf {

inline constexpr std::string_view kExitWeights = "sluice.exit.weights";

}  // namespace sluice::gguf
