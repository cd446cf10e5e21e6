// What decode.cpp asks of each format. NAME_stub.cpp replaces NAME.cpp where the library is
// missing. Codecs work on the picture as stored; rotation is done once, in decode.cpp.
#pragma once

#include "media/decode.h"

namespace sluice::media {

// A header as it is stored. Codecs fill it without checking the size.
struct StoredInfo {
  uint64_t width = 0, height = 0;
  uint8_t orientation = 1;       // EXIF
  uint64_t bytes_per_pixel = 3;  // upper bound of the decoder's memory, the picture included
};

struct Codec {
  const char* name;
  Status (*info)(Bytes file, StoredInfo* out);
  // `image` has the size of info().
  Status (*decode)(Bytes file, DecodeMode mode, Image* image);
};

extern const Codec kPng, kJpeg, kWebp, kBmp, kGif;

// The error of a damaged file. `why`: a library's message, or "".
[[nodiscard]] Status damaged(const char* format, const char* why);

// One channel of a pixel over white.
[[nodiscard]] inline uint8_t over_white(uint32_t value, uint32_t alpha) {
  return static_cast<uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}
// n pixels RGBA to RGB over white.
inline void flatten(const uint8_t* rgba, uint64_t n, uint8_t* rgb) {
  for (uint64_t i = 0; i < n; ++i) {
    for (uint64_t c = 0; c < 3; ++c) rgb[3 * i + c] = over_white(rgba[4 * i + c], rgba[4 * i + 3]);
  }
}

}  // namespace sluice::media
