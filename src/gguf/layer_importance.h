// The metadata key of the layers' importance: f32 per layer, the KL divergence of the next token's
// distribution without that layer, in nats. Layers that are never skipped have the largest f32.
// `sluice convert --calibrate` writes it.
#pragma once

#include <string_view>

namespace sluice::gguf {

inline constexpr std::string_view kLayerImportance = "sluice.layer.importance";

}  // namespace sluice::gguf
