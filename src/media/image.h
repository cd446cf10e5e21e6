// A picture in memory: 8-bit RGB, row by row without padding. Decoders make it, preprocessing
// resizes it. Its size is checked against the limits before memory is allocated, since a file of a
// few kilobytes can claim gigabytes of pixels.
#pragma once

#include <cstdint>
#include <span>

#include "base/aligned.h"
#include "base/status.h"

namespace sluice::media {

using Bytes = std::span<const uint8_t>;

inline constexpr uint32_t kMaxSide = 65535;            // pixels
inline constexpr uint32_t kMaxCanvasSide = 1u << 20;   // of a resized copy: a thin one is longer
inline constexpr uint64_t kMaxPixels = 64ull << 20;    // of one picture: 192 MiB of RGB
inline constexpr uint64_t kMaxFileBytes = 256u << 20;  // of an encoded picture

struct Image {
  uint32_t width = 0, height = 0;
  AlignedBuffer bytes;  // height * width * 3: red, green, blue

  [[nodiscard]] uint64_t size() const { return 3ull * width * height; }
  [[nodiscard]] uint8_t* row(uint64_t y) { return bytes.as<uint8_t>() + y * width * 3; }
  [[nodiscard]] const uint8_t* row(uint64_t y) const { return bytes.as<uint8_t>() + y * width * 3; }

  // Checks the size and allocates; the pixels are uninitialized. Errors: kInvalidArgument (empty or
  // too large), kOutOfMemory.
  [[nodiscard]] static Result<Image> create(uint64_t width, uint64_t height,
                                            uint64_t max_pixels = kMaxPixels);
};

// Errors: kInvalidArgument, naming size and limit.
[[nodiscard]] Status check_size(uint64_t width, uint64_t height, uint64_t max_pixels = kMaxPixels,
                                uint64_t max_side = kMaxSide);

}  // namespace sluice::media
