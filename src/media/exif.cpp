#include "media/exif.h"

#include <cstring>

namespace sluice::media {
namespace {

class TiffReader {
 public:
  explicit TiffReader(Bytes bytes) : bytes_(bytes) {}
  [[nodiscard]] bool begin() {
    if (bytes_.size() < 8) return false;
    big_ = bytes_[0] == 'M';
    return (bytes_[0] == 'M' || bytes_[0] == 'I') && bytes_[0] == bytes_[1] && number(2, 2) == 42;
  }
  // A number of `n` bytes; 0 behind the end.
  [[nodiscard]] uint64_t number(uint64_t at, uint64_t n) const {
    uint64_t value = 0;
    if (at > bytes_.size() || bytes_.size() - at < n) return 0;
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t byte = bytes_[static_cast<size_t>(at + i)];
      value |= byte << 8 * (big_ ? n - 1 - i : i);
    }
    return value;
  }

 private:
  Bytes bytes_;
  bool big_ = false;
};

}  // namespace

uint8_t exif_orientation(Bytes tiff) {
  constexpr uint64_t kOrientation = 0x112, kShort = 3, kEntryBytes = 12;
  TiffReader reader(tiff);
  if (!reader.begin()) return 1;
  const uint64_t directory = reader.number(4, 4);
  const uint64_t entries = reader.number(directory, 2);  // at most 65535
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t at = directory + 2 + i * kEntryBytes;
    if (reader.number(at, 2) != kOrientation || reader.number(at + 2, 2) != kShort) continue;
    const uint64_t value = reader.number(at + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<uint8_t>(value) : uint8_t{1};
  }
  return 1;
}

Result<Image> turned(const Image& image, uint8_t orientation) {
  // Which side of what is seen the stored first row and first column are, by the standard's table.
  const bool transposed = orientation >= 5;
  const bool flip_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool flip_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Result<Image> out = transposed ? Image::create(image.height, image.width)
                                 : Image::create(image.width, image.height);
  if (!out.ok()) return out;
  for (uint32_t y = 0; y < out->height; ++y) {
    const uint32_t v = flip_y ? out->height - 1 - y : y;
    uint8_t* to = out->row(y);
    for (uint32_t x = 0; x < out->width; ++x, to += 3) {
      const uint32_t u = flip_x ? out->width - 1 - x : x;
      std::memcpy(to, image.row(transposed ? u : v) + 3ull * (transposed ? v : u), 3);
    }
  }
  return out;
}

}  // namespace sluice::media
