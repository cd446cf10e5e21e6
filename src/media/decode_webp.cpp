// WebP by libwebp. The container is walked here, for the first frame of an animation and for EXIF,
// so that the library's demuxer is not needed.
#include <webp/decode.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "media/codecs.h"
#include "media/exif.h"

namespace sluice::media {
namespace {

constexpr size_t kRiffBytes = 12, kChunkBytes = 8, kFrameBytes = 16;

uint32_t little(Bytes bytes, size_t at, size_t n) {
  uint32_t value = 0;
  for (size_t i = 0; i < n; ++i) value |= uint32_t{bytes[at + i]} << 8 * i;
  return value;
}

// The payload of the first chunk `id` of a container; empty if there is none.
Bytes find_chunk(Bytes file, std::string_view id) {
  for (size_t at = kRiffBytes; at <= file.size() && file.size() - at >= kChunkBytes;) {
    const size_t n = little(file, at + 4, 4), left = file.size() - at - kChunkBytes;
    const Bytes payload = file.subspan(at + kChunkBytes, std::min(n, left));
    if (std::memcmp(file.data() + at, id.data(), 4) == 0) return payload;
    if (n >= left) break;
    at += kChunkBytes + n + n % 2;
  }
  return {};
}

// The part of the file that holds the picture, and where it lies on the canvas.
struct WebpFrame {
  Bytes data;
  uint32_t x = 0, y = 0;
  uint64_t width = 0, height = 0;  // of the canvas
  WebPBitstreamFeatures features;  // of the frame
};

Status find_frame(Bytes file, WebpFrame* out) {
  out->data = file;
  if (WebPGetFeatures(file.data(), file.size(), &out->features) != VP8_STATUS_OK) {
    return damaged("WebP", "");
  }
  out->width = static_cast<uint64_t>(out->features.width);
  out->height = static_cast<uint64_t>(out->features.height);
  if (out->features.has_animation == 0) return {};
  const Bytes frame = find_chunk(file, "ANMF");
  if (frame.size() <= kFrameBytes) return damaged("WebP", "its animation has no frame");
  out->x = 2 * little(frame, 0, 3);
  out->y = 2 * little(frame, 3, 3);
  out->data = frame.subspan(kFrameBytes);
  if (WebPGetFeatures(out->data.data(), out->data.size(), &out->features) != VP8_STATUS_OK) {
    return damaged("WebP", "");
  }
  if (out->x + static_cast<uint64_t>(out->features.width) > out->width ||
      out->y + static_cast<uint64_t>(out->features.height) > out->height) {
    return damaged("WebP", "a frame lies outside of the picture");
  }
  return {};
}

Status webp_info(Bytes file, StoredInfo* out) {
  WebpFrame frame;
  SLUICE_RETURN_IF_ERROR(find_frame(file, &frame));
  out->width = frame.width;
  out->height = frame.height;
  // The picture, RGBA, and what the library holds of a lossless picture.
  out->bytes_per_pixel = frame.features.has_alpha != 0 ? 12 : 8;
  Bytes exif = find_chunk(file, "EXIF");
  constexpr char kExif[] = "Exif\0";  // which some programs copy from JPEG
  if (exif.size() > sizeof kExif && std::memcmp(exif.data(), kExif, sizeof kExif) == 0) {
    exif = exif.subspan(sizeof kExif);
  }
  out->orientation = exif_orientation(exif);
  return {};
}

Status webp_decode(Bytes file, DecodeMode mode, Image* image) {
  WebpFrame frame;
  SLUICE_RETURN_IF_ERROR(find_frame(file, &frame));
  const auto width = static_cast<uint64_t>(frame.features.width);
  const auto height = static_cast<uint64_t>(frame.features.height);
  const bool upright = mode == DecodeMode::kUpright;
  if (width < image->width || height < image->height) {  // nothing lies beside the frame
    std::memset(image->row(0), upright ? 255 : 0, static_cast<size_t>(image->size()));
  }
  uint8_t* to = image->row(frame.y) + 3ull * frame.x;
  const uint64_t stride = 3ull * image->width,
                 room = image->size() - frame.y * stride - 3 * frame.x;
  if (!upright || frame.features.has_alpha == 0) {
    const bool done =
        WebPDecodeRGBInto(frame.data.data(), frame.data.size(), to, static_cast<size_t>(room),
                          static_cast<int>(stride)) != nullptr;
    return done ? Status() : damaged("WebP", "");
  }
  AlignedBuffer rgba;
  SLUICE_RETURN_IF_ERROR(rgba.allocate(4 * width * height));
  if (WebPDecodeRGBAInto(frame.data.data(), frame.data.size(), rgba.as<uint8_t>(), rgba.size(),
                         static_cast<int>(4 * width)) == nullptr) {
    return damaged("WebP", "");
  }
  for (uint64_t y = 0; y < height; ++y) {
    flatten(rgba.as<uint8_t>() + 4 * width * y, width, to + stride * y);
  }
  return {};
}

}  // namespace

const Codec kWebp = {"WebP", webp_info, webp_decode};

}  // namespace sluice::media
