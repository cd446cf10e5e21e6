// The orientation of a picture in its EXIF block, and the rotation that it asks for.
#pragma once

#include "media/image.h"

namespace sluice::media {

// `tiff`: the EXIF block from its byte order mark on. Returns 1 to 8; 1 where there is none or it
// cannot be read.
[[nodiscard]] uint8_t exif_orientation(Bytes tiff);

// The picture as orientation 2 to 8 wants it seen. Errors: kOutOfMemory.
[[nodiscard]] Result<Image> turned(const Image& image, uint8_t orientation);

}  // namespace sluice::media
