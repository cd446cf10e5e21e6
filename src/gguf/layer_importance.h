// What a file says of its layers, by the key under which it does: f32 by layer, the divergence of
// the next token's distribution without that layer, in nats; the largest f32 for layers that always
// stay. `sluice convert --calibrate` measures it.
#pragma once

#include <string_view>

namespace sluice::gguf {

inline constexpr std::string_view kLayerImportance = "sluice.layer.importance";

}  // namespace sluice::gguf
