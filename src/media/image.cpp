#include "media/image.h"

#include <algorithm>

namespace sluice::media {

Status check_size(uint64_t width, uint64_t height, uint64_t max_pixels, uint64_t max_side) {
  if (width == 0 || height == 0) {
    return error(Code::kInvalidArgument, "the picture is empty: %llu x %llu pixels",
                 static_cast<unsigned long long>(width), static_cast<unsigned long long>(height));
  }
  const uint64_t limit = std::min(max_pixels, kMaxPixels);
  if (width > max_side || height > max_side || width * height > limit) {
    return error(Code::kInvalidArgument,
                 "the picture has %llu x %llu pixels; the limit is %llu, and %llu a side",
                 static_cast<unsigned long long>(width), static_cast<unsigned long long>(height),
                 static_cast<unsigned long long>(limit), static_cast<unsigned long long>(max_side));
  }
  return {};
}

Result<Image> Image::create(uint64_t width, uint64_t height, uint64_t max_pixels) {
  SLUICE_RETURN_IF_ERROR(check_size(width, height, max_pixels, kMaxCanvasSide));
  Image image;
  image.width = static_cast<uint32_t>(width);
  image.height = static_cast<uint32_t>(height);
  SLUICE_RETURN_IF_ERROR(image.bytes.allocate(image.size()));
  return image;
}

}  // namespace sluice::media
