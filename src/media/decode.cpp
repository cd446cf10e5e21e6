#include "media/decode.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "media/codecs.h"
#include "media/exif.h"

namespace sluice::media {
namespace {

using namespace std::string_view_literals;

// The signatures of files, at `at`. Formats without a codec are known by name, for the message.
struct Signature {
  size_t at;
  std::string_view bytes;
  const Codec* codec;
  const char* name;
};
constexpr Signature kSignatures[] = {
    {0, "\x89PNG\r\n\x1a\n"sv, &kPng, "PNG"},
    {0, "\xff\xd8\xff"sv, &kJpeg, "JPEG"},
    {8, "WEBP"sv, &kWebp, "WebP"},
    {0, "BM"sv, &kBmp, "BMP"},
    {0, "GIF8"sv, &kGif, "GIF"},
    {0, "II*\0"sv, nullptr, "TIFF"},
    {0, "MM\0*"sv, nullptr, "TIFF"},
    {4, "ftypavif"sv, nullptr, "AVIF"},
    {4, "ftypavis"sv, nullptr, "AVIF"},
    {4, "ftyphei"sv, nullptr, "HEIF"},
    {4, "ftypmif1"sv, nullptr, "HEIF"},
    {0, "\xff\x0a"sv, nullptr, "JPEG XL"},
    {4, "JXL "sv, nullptr, "JPEG XL"},
    {4, "jP  "sv, nullptr, "JPEG 2000"},
    {0, "<svg"sv, nullptr, "SVG"},
    {0, "<?xml"sv, nullptr, "SVG"},
    {0, "%PDF"sv, nullptr, "PDF"},
};

Result<const Codec*> find_codec(Bytes file) {
  if (file.size() > kMaxFileBytes) {
    return error(Code::kInvalidArgument, "the picture's file has %llu bytes; the limit is %llu",
                 static_cast<unsigned long long>(file.size()),
                 static_cast<unsigned long long>(kMaxFileBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const Signature& each : kSignatures) {
    if (text.size() < each.at || !text.substr(each.at).starts_with(each.bytes)) continue;
    if (each.codec != nullptr) return each.codec;
    return error(Code::kNotSupported,
                 "%s pictures are not supported: use PNG, JPEG, WebP, BMP or GIF", each.name);
  }
  return error(Code::kInvalidArgument, "the file is not a PNG, JPEG, WebP, BMP or GIF picture");
}

struct Found {
  const Codec* codec;
  StoredInfo stored;
  ImageInfo info;
};

Result<Found> read_header(Bytes file, const DecodeOptions& options) {
  Result<const Codec*> codec = find_codec(file);
  if (!codec.ok()) return codec.status();
  Found found{*codec, {}, {}};
  StoredInfo& stored = found.stored;
  SLUICE_RETURN_IF_ERROR((*codec)->info(file, &stored));
  SLUICE_RETURN_IF_ERROR(check_size(stored.width, stored.height, options.max_pixels));
  if (options.mode == DecodeMode::kReference) stored.orientation = 1;
  const bool exchanged = stored.orientation >= 5;
  ImageInfo& info = found.info;
  info.format = (*codec)->name;
  info.orientation = stored.orientation;
  info.width = static_cast<uint32_t>(exchanged ? stored.height : stored.width);
  info.height = static_cast<uint32_t>(exchanged ? stored.width : stored.height);
  constexpr uint64_t kFixedBytes = 1 << 20;  // tables
  constexpr uint64_t kColumnBytes = 256;     // rows of blocks with all of their components
  const uint64_t per_pixel =
      std::max<uint64_t>(stored.bytes_per_pixel, info.orientation > 1 ? 6 : 3);
  info.decode_bytes = kFixedBytes + file.size() + kColumnBytes * stored.width +
                      stored.width * stored.height * per_pixel;
  return found;
}

}  // namespace

Status damaged(const char* format, const char* why) {
  return error(Code::kInvalidArgument, "the %s picture is damaged or incomplete%s%s", format,
               why[0] == '\0' ? "" : ": ", why);
}

Result<DecodeMode> parse_decode_mode(std::string_view text) {
  if (text == "upright") return DecodeMode::kUpright;
  if (text == "reference") return DecodeMode::kReference;
  return error(Code::kInvalidArgument,
               "\"%.32s\" is not a way to read pictures: use upright or "
               "reference",
               std::string(text).c_str());
}

Result<ImageInfo> image_info(Bytes file, const DecodeOptions& options) {
  Result<Found> found = read_header(file, options);
  if (!found.ok()) return found.status();
  return found->info;
}

Result<Image> decode(Bytes file, const DecodeOptions& options) {
  Result<Found> found = read_header(file, options);
  if (!found.ok()) return found.status();
  Result<Image> image =
      Image::create(found->stored.width, found->stored.height, options.max_pixels);
  if (!image.ok()) return image;
  SLUICE_RETURN_IF_ERROR(found->codec->decode(file, options.mode, &*image));
  if (found->info.orientation == 1) return image;
  return turned(*image, found->info.orientation);
}

}  // namespace sluice::media
