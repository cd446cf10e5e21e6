#include "vision/patches.h"

namespace sluice::vision {

void patch_values(const PatchSource& source, Cell cell, float* out) {
  const int64_t side = source.side, plane = side * side;
  for (int64_t i = 0; i < plane; ++i) {
    const uint8_t* pixel = source.image.row(static_cast<uint64_t>(cell.row * side + i / side)) +
                           3 * (cell.column * side + i % side);
    for (int64_t c = 0; c < 3; ++c) {
      const auto channel = static_cast<size_t>(c);
      const float value = (static_cast<float>(pixel[c]) / 255.0f - source.projector.mean[channel]) /
                          source.projector.deviation[channel];
      out[c * plane + i] = source.shifted ? 2 * value - 1 : value;
    }
  }
}

}  // namespace sluice::vision
