// The patches of a picture as a program's first operation takes them.
#pragma once

#include "media/preprocess.h"
#include "vision/geometry.h"

namespace sluice::vision {

struct PatchSource {
  const media::Image& image;
  const media::Projector& projector;  // its mean and deviation
  bool shifted = false;               // Program::shifted
  int32_t side = 0;                   // pixels
};
// The normalized pixels of one patch: [channel][row][column].
void patch_values(const PatchSource& source, Cell cell, float* out);

}  // namespace sluice::vision
