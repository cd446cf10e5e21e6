// What the configs and checkpoints of LFM2 and LFM2-MoE say in words of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hf/json.h"

namespace sluice::hf {

// Of a layer's tensor, "feed_forward.experts.3.w1" and ".weight" to "ffn_gate.3.weight"; empty when
// unknown.
[[nodiscard]] std::string lfm2_name(std::string_view part, std::string_view suffix);
// The feed-forward size of the dense model: mostly two thirds of what the config says, rounded up.
// 0: impossible.
[[nodiscard]] int64_t lfm2_feed_forward(const Json& config);
// By layer: `heads` where it has attention, 0 where it has a convolution. Empty: the config does
// not list the layers.
[[nodiscard]] std::vector<int32_t> lfm2_heads(const Json& config, int64_t n_layer, int64_t heads);

}  // namespace sluice::hf
