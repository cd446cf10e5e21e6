// `sluice logits --projector`: the logits behind the pictures of a prompt.
#pragma once

#include "cli/media_prompt.h"

namespace sluice::cli {

// Writes the logits of every text position behind the last picture to `out`: f32, [tokens x
// vocabulary]. Returns the exit status.
[[nodiscard]] int media_logits(const Common& common, const MediaOptions& media,
                               const std::string& out);

}  // namespace sluice::cli
