// BMP: 24 and 32 bits a pixel without compression, with or without masks, and palettes of 8 bits.
// Layout: https://learn.microsoft.com/windows/win32/gdi/bitmap-storage
#include <array>
#include <bit>

#include "media/codecs.h"

namespace sluice::media {
namespace {

constexpr uint64_t kFileHeader = 14, kCoreHeader = 12, kInfoHeader = 40, kV3Header = 56;
enum Compression : uint32_t { kPlain = 0, kMasks = 3, kAlphaMasks = 6 };

struct BmpHeader {
  uint64_t width = 0, height = 0, bits = 0;
  uint64_t pixels = 0, row_bytes = 0;            // offset; bytes of a row with its padding
  uint64_t palette = 0, colours = 0, entry = 0;  // offset, number, bytes of one
  bool top_down = false;
  std::array<uint8_t, 4> shift{16, 8, 0, 24};  // of red, green, blue, alpha in 32 bits
  bool alpha = false;
};

uint64_t number(Bytes file, uint64_t at, uint64_t n) {
  uint64_t value = 0;
  for (uint64_t i = 0; i < n; ++i) value |= uint64_t{file[static_cast<size_t>(at + i)]} << 8 * i;
  return value;
}

// The masks of a 32-bit picture, each of 8 bits in a row.
Status read_masks(Bytes file, uint64_t header_bytes, bool with_alpha, BmpHeader* out) {
  const uint64_t n = with_alpha || header_bytes >= kV3Header ? 4 : 3;
  if (file.size() < kFileHeader + kInfoHeader + 4 * n) return damaged("BMP", "");
  for (uint64_t i = 0; i < n; ++i) {
    const auto mask = static_cast<uint32_t>(number(file, kFileHeader + kInfoHeader + 4 * i, 4));
    const auto shift = static_cast<uint8_t>(std::countr_zero(mask));
    if (i == 3 && mask == 0) return {};
    if (mask == 0 || mask >> shift != 0xff) {
      return error(Code::kNotSupported,
                   "BMP pictures with channels that have not 8 bits are not "
                   "supported");
    }
    out->shift[static_cast<size_t>(i)] = shift;
    if (i == 3) out->alpha = true;
  }
  return {};
}

Status read_palette(Bytes file, uint64_t header_bytes, BmpHeader* out) {
  const bool core = header_bytes == kCoreHeader;
  out->entry = core ? 3 : 4;
  out->palette = kFileHeader + header_bytes;
  out->colours = core ? 0 : number(file, 46, 4);
  if (out->colours == 0) out->colours = 256;
  if (out->colours > 256 || file.size() < out->palette + out->colours * out->entry) {
    return damaged("BMP", "its palette is not complete");
  }
  return {};
}

Status read_bmp(Bytes file, BmpHeader* out) {
  if (file.size() < kFileHeader + kCoreHeader) return damaged("BMP", "the file ends too early");
  const uint64_t header_bytes = number(file, 14, 4);
  const bool core = header_bytes == kCoreHeader;
  if (!core && (header_bytes < kInfoHeader || header_bytes > 256)) {
    return damaged("BMP", "its header has an unknown size");
  }
  if (file.size() < kFileHeader + header_bytes) return damaged("BMP", "the file ends too early");
  const uint64_t side_bytes = core ? 2 : 4;
  out->width = number(file, 18, side_bytes);
  out->height = number(file, 18 + side_bytes, side_bytes);
  out->bits = number(file, core ? 24 : 28, 2);
  const uint64_t compression = core ? uint64_t{kPlain} : number(file, 30, 4);
  if (!core && out->height >= 1ull << 31) {
    out->top_down = true;
    out->height = (1ull << 32) - out->height;
  }
  const bool masked = compression == kMasks || compression == kAlphaMasks;
  if ((out->bits != 8 && out->bits != 24 && out->bits != 32) ||
      (compression != kPlain && !(masked && out->bits == 32))) {
    return error(
        Code::kNotSupported, "BMP pictures of %llu bits and compression %llu are not supported",
        static_cast<unsigned long long>(out->bits), static_cast<unsigned long long>(compression));
  }
  out->pixels = number(file, 10, 4);
  out->row_bytes = (out->width * out->bits + 31) / 32 * 4;
  if (masked) {
    SLUICE_RETURN_IF_ERROR(read_masks(file, header_bytes, compression == kAlphaMasks, out));
  }
  return out->bits == 8 ? read_palette(file, header_bytes, out) : Status();
}

// Some programs leave alpha 0 everywhere: such a picture is opaque.
bool uses_alpha(Bytes file, const BmpHeader& bmp) {
  if (!bmp.alpha) return false;
  for (uint64_t i = 0; i < bmp.width * bmp.height; ++i) {
    if ((number(file, bmp.pixels + 4 * i, 4) >> bmp.shift[3] & 0xff) != 0) return true;
  }
  return false;
}

Status bmp_info(Bytes file, StoredInfo* out) {
  BmpHeader bmp;
  SLUICE_RETURN_IF_ERROR(read_bmp(file, &bmp));
  out->width = bmp.width;
  out->height = bmp.height;
  return {};
}

Status bmp_decode(Bytes file, DecodeMode mode, Image* image) {
  BmpHeader bmp;
  SLUICE_RETURN_IF_ERROR(read_bmp(file, &bmp));
  if (bmp.pixels > file.size() || (file.size() - bmp.pixels) / bmp.row_bytes < bmp.height) {
    return damaged("BMP", "the file ends too early");
  }
  const bool alpha = mode == DecodeMode::kUpright && uses_alpha(file, bmp);
  for (uint32_t y = 0; y < image->height; ++y) {
    const uint64_t stored = bmp.top_down ? y : image->height - 1 - y;
    const uint64_t from = bmp.pixels + stored * bmp.row_bytes;
    uint8_t* to = image->row(y);
    for (uint64_t x = 0; x < image->width; ++x, to += 3) {
      uint64_t pixel = number(file, from + x * bmp.bits / 8, bmp.bits / 8);
      if (bmp.bits == 8) {
        if (pixel >= bmp.colours) return damaged("BMP", "a colour is not in its palette");
        pixel = number(file, bmp.palette + pixel * bmp.entry, 3);
      }
      for (size_t c = 0; c < 3; ++c) {
        const auto value = static_cast<uint8_t>(pixel >> bmp.shift[c]);
        to[c] = alpha ? over_white(value, pixel >> bmp.shift[3] & 0xff) : value;
      }
    }
  }
  return {};
}

}  // namespace

const Codec kBmp = {"BMP", bmp_info, bmp_decode};

}  // namespace sluice::media
