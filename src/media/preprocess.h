// A decoded picture to the inputs of the encoder, as plan_image() laid them out.
#pragma once

#include <span>
#include <vector>

#include "media/plan.h"

namespace sluice::media {

// One picture per input of the plan, in its order. `image` has the plan's size. Errors:
// kInvalidArgument (another size), kOutOfMemory.
[[nodiscard]] Result<std::vector<Image>> preprocess(const Projector& projector,
                                                    const PicturePlan& plan, const Image& image);

// The encoder's values of an input: (byte / 255 - mean) / deviation, in single precision. `out`:
// height * width * 3, as the bytes lie.
void normalize(const Projector& projector, const Image& input, std::span<float> out);

}  // namespace sluice::media
