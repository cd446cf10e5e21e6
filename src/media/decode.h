// Encoded pictures to RGB: PNG, JPEG, WebP, BMP and GIF from bytes in memory. The header is read
// first, and its size is checked before anything else is decoded. Damaged files are errors, never
// partly decoded pictures. Colour profiles and gamma are ignored, as llama.cpp and most models' own
// preprocessing do. Of an animation the first frame is taken.
#pragma once

#include "media/image.h"

namespace sluice::media {

enum class DecodeMode : uint8_t {
  // What a viewer shows: EXIF rotation applied, transparent parts over white, 16 bits rounded to 8.
  kUpright,
  // As llama.cpp reads files: EXIF ignored, alpha dropped with the colours under it kept, the high
  // byte of 16 bits.
  kReference,
};

// Parses "upright" or "reference". Errors: kInvalidArgument.
[[nodiscard]] Result<DecodeMode> parse_decode_mode(std::string_view text);

struct DecodeOptions {
  DecodeMode mode = DecodeMode::kUpright;
  uint64_t max_pixels = kMaxPixels;  // at most kMaxPixels
};

struct ImageInfo {
  const char* format = "";         // "PNG"
  uint32_t width = 0, height = 0;  // of the picture as decoded: a rotation is included
  uint8_t orientation = 1;         // EXIF, 1 to 8; 1 with kReference
  uint64_t decode_bytes = 0;       // upper bound of the memory of decode(), the picture included
};

// Reads the header alone. Errors: kInvalidArgument (not a picture, damaged, too large),
// kNotSupported (a format that this build does not read, named).
[[nodiscard]] Result<ImageInfo> image_info(Bytes file, const DecodeOptions& options = {});

// Errors: image_info()'s, kOutOfMemory.
[[nodiscard]] Result<Image> decode(Bytes file, const DecodeOptions& options = {});

}  // namespace sluice::media
