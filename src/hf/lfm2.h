// Names and sizes in the configs and checkpoints of LFM2 and LFM2-MoE.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hf/json.h"

namespace sluice::hf {

// GGUF's name of a layer's tensor: "feed_forward.experts.3.w1" and ".weight" become
// "ffn_gate.3.weight". Empty when unknown.
[[nodiscard]] std::string lfm2_name(std::string_view part, std::string_view suffix);
// The feed-forward size of the dense model: usually two thirds of the config's value, rounded up.
// 0: impossible.
[[nodiscard]] int64_t lfm2_feed_forward(const Json& config);
// For each layer, `heads` if it has attention, or 0 if it has a convolution. Empty when the config
// does not list the layers.
[[nodiscard]] std::vector<int32_t> lfm2_heads(const Json& config, int64_t n_layer, int64_t heads);

}  // namespace sluice::hf
