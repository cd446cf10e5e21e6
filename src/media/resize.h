// Resizing as Pillow does it, bit for bit, since models were trained on such pictures: separable,
// the horizontal pass first, the filter widened when reducing, weights of 22 fractional bits, each
// pass rounded to bytes. A copy where the size is equal.
#pragma once

#include "media/image.h"

namespace sluice::media {

enum class Filter : uint8_t { kBilinear, kBicubic, kLanczos };

// Errors: kInvalidArgument (size), kOutOfMemory.
[[nodiscard]] Result<Image> resize(const Image& image, uint32_t width, uint32_t height,
                                   Filter filter);

// Upper bound of the memory of resize(): its result, the picture between the passes, the weights.
[[nodiscard]] uint64_t resize_bytes(uint64_t from_width, uint64_t from_height, uint64_t width,
                                    uint64_t height, Filter filter);

// `image` on a canvas of `width` x `height`: reduced or enlarged to fit, in the middle, the rest
// filled with `background` (RGB). Errors: resize()'s.
[[nodiscard]] Result<Image> resize_to_fit(const Image& image, uint32_t width, uint32_t height,
                                          Filter filter, const uint8_t background[3]);

// A rectangle of `image`, which must contain it. Errors: kOutOfMemory.
[[nodiscard]] Result<Image> crop(const Image& image, uint32_t x, uint32_t y, uint32_t width,
                                 uint32_t height);

}  // namespace sluice::media
