// Decoders on the pictures of tests/data/pictures (tests/reference/make_pictures.cpp): both modes,
// every truncated length, and hostile headers.
#include <cmath>
#include <cstring>
#include <functional>

#include "media/exif.h"
#include "vision_files.h"

namespace sluice::test {
namespace {

using media::DecodeMode;
using media::Image;
using Bytes = std::vector<uint8_t>;

constexpr uint32_t kWidth = 21, kHeight = 13;

int formula(uint32_t x, uint32_t y, uint32_t channel) {
  const int column = static_cast<int>(x), row = static_cast<int>(y);
  const int values[] = {column * 12, row * 19, 255 - column * 6 - row * 10,
                        x < 4 ? 0 : 15 + column * 12};
  return values[channel];
}
int over_white(int value, int alpha) {
  return (value * alpha + 255 * (255 - alpha) + 127) / 255;
}

// What a file shows: red, green or blue at a position of the stored picture.
using Shown = std::function<int(uint32_t x, uint32_t y, uint32_t channel)>;

struct Sample {
  const char* name;
  Shown reference, upright;
  int tolerance = 0;  // of lossy formats
  uint8_t orientation = 1;
};

const Shown kGrey = [](uint32_t x, uint32_t y, uint32_t) { return formula(x, y, 0); };
Shown blended(const Shown& shown) {
  return [shown](uint32_t x, uint32_t y, uint32_t c) {
    return over_white(shown(x, y, c), formula(x, y, 3));
  };
}
// 16 bits are value * 256 + 200.
int rounded(int value) {
  return static_cast<int>(std::lround((value * 256 + 200) / 257.0));
}
Shown low_bits(uint32_t bits) {
  return [bits](uint32_t x, uint32_t, uint32_t) {
    const uint32_t most = (1u << bits) - 1;
    return static_cast<int>((x & most) * 255 / most);
  };
}
Shown framed(int outside) {
  return [outside](uint32_t x, uint32_t y, uint32_t c) {
    return x >= 4 && x < 20 && y >= 2 && y < 10 ? formula(x, y, c) : outside;
  };
}
const Shown kColumns = [](uint32_t x, uint32_t, uint32_t c) { return formula(x, 0, c); };

const Shown kNoise = [](uint32_t x, uint32_t y, uint32_t c) {
  const int index = static_cast<int>((x * 7 + y * 13 + x * y * 5) % 21);
  return formula(static_cast<uint32_t>(index), 0, c);
};
// A frame of 16 x 8 pixels at (4, 2) without colour 9, on background colour 3.
Shown gif_frame(bool upright) {
  return [upright](uint32_t x, uint32_t y, uint32_t c) {
    const bool inside = x >= 4 && x < 20 && y >= 2 && y < 10;
    if (!inside) return upright ? 255 : formula(3, 0, c);
    if (x == 9) return upright ? 255 : 0;
    return formula(x, 0, c);
  };
}

std::vector<Sample> samples() {
  const Shown columns_blended = [](uint32_t x, uint32_t, uint32_t c) {
    return over_white(formula(x, 0, c), formula(x, 0, 3));
  };
  const Shown deep = [](uint32_t x, uint32_t y, uint32_t c) { return rounded(formula(x, y, c)); };
  return {
      {"rgb.png", formula, formula},
      {"rgb-interlaced.png", formula, formula},
      {"rgb16.png", formula, deep},
      {"rgba.png", formula, blended(formula)},
      {"rgba-interlaced.png", formula, blended(formula)},
      {"grey.png", kGrey, kGrey},
      {"grey-alpha.png", kGrey, blended(kGrey)},
      {"grey1.png", low_bits(1), low_bits(1)},
      {"grey2.png", low_bits(2), low_bits(2)},
      {"grey4.png", low_bits(4), low_bits(4)},
      {"palette-alpha.png", kColumns, columns_blended},
      {"turned.png", formula, formula, 0, 6},
      {"rgb.jpg", formula, formula, 12},
      {"halved.jpg", formula, formula, 24},
      {"progressive.jpg", formula, formula, 12},
      {"grey.jpg", kGrey, kGrey, 6},
      {"cmyk.jpg", formula, formula, 12},
      {"ycck.jpg", formula, formula, 16},
      {"turned.jpg", formula, formula, 12, 6},
      {"lossless.webp", formula, formula},
      {"lossless-alpha.webp", formula, blended(formula)},
      {"lossy.webp", formula, formula, 32},
      {"animation.webp", framed(0), framed(255)},
      {"turned.webp", formula, formula, 0, 8},
      {"rgb.bmp", formula, formula},
      {"top-down.bmp", formula, formula},
      {"masks-alpha.bmp", formula, blended(formula)},
      {"palette.bmp", kColumns, kColumns},
      {"columns.gif", kColumns, kColumns},
      {"long.gif", kNoise, kNoise},
      {"frame.gif", gif_frame(false), gif_frame(true)},
  };
}

std::filesystem::path folder() {
  return std::filesystem::path(source_dir()) / "tests/data/pictures";
}

// The pixel of the stored picture at a position of what is seen.
std::pair<uint32_t, uint32_t> stored_at(uint32_t x, uint32_t y, uint8_t orientation) {
  if (orientation == 6) return {y, kHeight - 1 - x};
  if (orientation == 8) return {kWidth - 1 - y, x};
  return {x, y};
}

void expect_shown(const Image& image, const Shown& shown, uint8_t orientation, int tolerance) {
  const bool exchanged = orientation >= 5;
  ASSERT_EQ(image.width, exchanged ? kHeight : kWidth);
  ASSERT_EQ(image.height, exchanged ? kWidth : kHeight);
  for (uint32_t y = 0; y < image.height; ++y) {
    for (uint32_t x = 0; x < image.width; ++x) {
      const auto [u, v] = stored_at(x, y, orientation);
      for (uint32_t c = 0; c < 3; ++c) {
        ASSERT_NEAR(image.row(y)[3 * x + c], shown(u, v, c), tolerance)
            << "at " << x << ", " << y << ", channel " << c;
      }
    }
  }
}

TEST(VisionDecode, EveryFormatInBothModes) {
  for (const Sample& sample : samples()) {
    SCOPED_TRACE(sample.name);
    const Bytes file = read_bytes(folder() / sample.name);
    if (!can_decode(file)) continue;
    auto reference = media::decode(file, {DecodeMode::kReference});
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    expect_shown(*reference, sample.reference, 1, sample.tolerance);
    auto upright = media::decode(file);
    ASSERT_TRUE(upright.ok()) << upright.status().message();
    expect_shown(*upright, sample.upright, sample.orientation, sample.tolerance);
    auto info = media::image_info(file);
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->width, upright->width);
    EXPECT_EQ(info->height, upright->height);
    EXPECT_EQ(info->orientation, sample.orientation);
    EXPECT_GE(info->decode_bytes, upright->size());
  }
}

TEST(VisionDecode, LossyAlphaIsOverWhite) {
  const Bytes file = read_bytes(folder() / "lossy-alpha.webp");
  if (!can_decode(file)) GTEST_SKIP() << "this build has no libwebp";
  auto image = media::decode(file);
  ASSERT_TRUE(image.ok()) << image.status().message();
  for (uint32_t x = 0; x < 4; ++x) EXPECT_EQ(image->row(6)[3 * x], 255);  // transparent
  EXPECT_NEAR(image->row(6)[3 * 20], formula(20, 6, 0), 32);              // opaque
}

// A truncated file is an error with a message, or has all of its pixels.
TEST(VisionDecode, EveryTruncatedLength) {
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    SCOPED_TRACE(entry.path().filename().string());
    const Bytes file = read_bytes(entry.path());
    if (!can_decode(file)) continue;
    auto whole = media::decode(file);
    ASSERT_TRUE(whole.ok());
    for (size_t n = 0; n < file.size(); ++n) {
      const Bytes part(file.begin(), file.begin() + static_cast<ptrdiff_t>(n));
      auto image = media::decode(part);
      if (!image.ok()) {
        ASSERT_EQ(image.status().code(), Code::kInvalidArgument) << n;
        ASSERT_FALSE(image.status().message().empty()) << n;
        continue;
      }
      const auto name = entry.path().stem();
      if (name != "animation" && name != "turned" &&
          name != "frame") {  // where more follows after the pixels
        ASSERT_GE(n + 16, file.size()) << "too much is missing";
      }
      ASSERT_EQ(image->size(), whole->size());
      ASSERT_EQ(std::memcmp(image->row(0), whole->row(0), whole->size()), 0) << n;
    }
  }
}

void put(Bytes* file, size_t at, uint32_t value, size_t n, bool big_endian = false) {
  for (size_t i = 0; i < n; ++i) {
    (*file)[at + i] = static_cast<uint8_t>(value >> 8 * (big_endian ? n - 1 - i : i));
  }
}

void expect_no_image(const Bytes& file, Code code, const std::string& word) {
  for (const Status& status : {media::decode(file).status(), media::image_info(file).status()}) {
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}

TEST(VisionDecode, HugeSizesAreRefusedFromTheHeader) {
  Bytes bmp = read_bytes(folder() / "rgb.bmp");
  put(&bmp, 18, 60000, 4);
  put(&bmp, 22, 60000, 4);
  expect_no_image(bmp, Code::kInvalidArgument, "60000 x 60000");
  put(&bmp, 18, 0, 4);
  expect_no_image(bmp, Code::kInvalidArgument, "empty");
  put(&bmp, 18, 0xffffffff, 4);
  put(&bmp, 22, 0x80000000, 4);
  expect_no_image(bmp, Code::kInvalidArgument, "4294967295 x 2147483648");
  Bytes jpeg = read_bytes(folder() / "rgb.jpg");
  if (can_decode(jpeg)) {
    for (size_t i = 0; i + 9 < jpeg.size(); ++i) {
      if (jpeg[i] != 0xff || jpeg[i + 1] != 0xc0) continue;
      put(&jpeg, i + 5, 0xffdcffdc, 4, true);
      break;
    }
    expect_no_image(jpeg, Code::kInvalidArgument, "65500 x 65500");
  }
  const Bytes png = read_bytes(folder() / "rgb.png");
  if (!can_decode(png)) return;
  auto small = media::decode(png, {DecodeMode::kUpright, kWidth * kHeight - 1});
  EXPECT_EQ(small.status().code(), Code::kInvalidArgument);
  EXPECT_NE(small.status().message().find("21 x 13"), std::string::npos);
  EXPECT_TRUE(media::decode(png, {DecodeMode::kUpright, kWidth * kHeight}).ok());
}

// libpng allocates what a chunk claims, before it reads the chunk.
TEST(VisionDecode, AChunkThatClaimsGigabytesIsRefused) {
  Bytes file = read_bytes(folder() / "turned.png");
  if (!can_decode(file)) GTEST_SKIP() << "this build has no libpng";
  constexpr size_t kChunk = 8 + 25;  // behind the signature and IHDR
  ASSERT_EQ(std::string(&file[kChunk + 4], &file[kChunk + 8]), "eXIf");
  put(&file, kChunk, 0x7fffffff, 4, true);
  expect_no_image(file, Code::kInvalidArgument, "too early");
}

TEST(VisionDecode, OtherFormatsAreNamed) {
  const auto text = [](std::string_view bytes) { return Bytes(bytes.begin(), bytes.end()); };
  expect_no_image(text("....ftypavif...."), Code::kNotSupported, "AVIF");
  expect_no_image(text("....ftypheic...."), Code::kNotSupported, "HEIF");
  expect_no_image(text("<svg xmlns"), Code::kNotSupported, "SVG");
  expect_no_image(text("%PDF-1.7"), Code::kNotSupported, "PDF");
  expect_no_image(text("<html>"), Code::kInvalidArgument, "not a PNG");
  expect_no_image({}, Code::kInvalidArgument, "not a PNG");
}

TEST(VisionDecode, UnusualBmpFilesAreNamed) {
  const Bytes file = read_bytes(folder() / "rgb.bmp");
  Bytes other = file;
  put(&other, 28, 16, 2);
  expect_no_image(other, Code::kNotSupported, "16 bits");
  other = file;
  put(&other, 30, 1, 4);
  expect_no_image(other, Code::kNotSupported, "compression 1");
  other = read_bytes(folder() / "masks-alpha.bmp");
  put(&other, 54, 0x7c00, 4);
  expect_no_image(other, Code::kNotSupported, "8 bits");
  other = file;
  put(&other, 14, 13, 4);
  expect_no_image(other, Code::kInvalidArgument, "header");
  other = read_bytes(folder() / "palette.bmp");
  other.back() = other[other.size() - 4] = 200;  // of 21 colours
  for (size_t i = other.size() - 24; i < other.size(); ++i) other[i] = 200;
  EXPECT_NE(media::decode(other).status().message().find("palette"), std::string::npos);
}

TEST(VisionDecode, DamagedDataIsAnError) {
  for (const char* name : {"rgb.png", "rgb.jpg", "progressive.jpg", "lossless.webp"}) {
    SCOPED_TRACE(name);
    Bytes file = read_bytes(folder() / name);
    if (!can_decode(file)) continue;
    for (size_t i = file.size() * 3 / 4; i + 2 < file.size(); ++i) file[i] = 0xff;
    EXPECT_EQ(media::decode(file).status().code(), Code::kInvalidArgument);
  }
}

// Each scan of a progressive file visits every block.
TEST(VisionDecode, AJpegThatRepeatsItsScansIsRefused) {
  const Bytes file = read_bytes(folder() / "progressive.jpg");
  if (!can_decode(file)) GTEST_SKIP() << "this build has no libjpeg";
  std::vector<size_t> scans;
  for (size_t i = 0; i + 1 < file.size(); ++i) {
    if (file[i] == 0xff && file[i + 1] == 0xda) scans.push_back(i);
  }
  ASSERT_GT(scans.size(), 5u);
  Bytes bomb(file.begin(), file.end() - 2);
  // The last scan refines what it refined before: a warning for libjpeg, and an error here.
  for (int i = 0; i < 4; ++i) {
    bomb.insert(bomb.end(), file.begin() + static_cast<ptrdiff_t>(scans.back()), file.end() - 2);
  }
  bomb.insert(bomb.end(), file.end() - 2, file.end());
  EXPECT_EQ(media::decode(bomb).status().code(), Code::kInvalidArgument);
}

Bytes tiff(bool big_endian, uint32_t tag, uint32_t type, uint32_t value) {
  Bytes out(26, 0);
  out[0] = out[1] = big_endian ? 'M' : 'I';
  put(&out, 2, 42, 2, big_endian);
  put(&out, 4, 8, 4, big_endian);
  put(&out, 8, 1, 2, big_endian);
  put(&out, 10, tag, 2, big_endian);
  put(&out, 12, type, 2, big_endian);
  put(&out, 14, 1, 4, big_endian);
  put(&out, 18, value, 2, big_endian);
  return out;
}

TEST(VisionDecode, ExifOrientationIsRead) {
  EXPECT_EQ(media::exif_orientation(tiff(false, 0x112, 3, 6)), 6);
  EXPECT_EQ(media::exif_orientation(tiff(true, 0x112, 3, 8)), 8);
  EXPECT_EQ(media::exif_orientation(tiff(true, 0x113, 3, 8)), 1);
  EXPECT_EQ(media::exif_orientation(tiff(true, 0x112, 4, 8)), 1);
  EXPECT_EQ(media::exif_orientation(tiff(false, 0x112, 3, 9)), 1);
  EXPECT_EQ(media::exif_orientation(tiff(false, 0x112, 3, 0)), 1);
  Bytes far = tiff(false, 0x112, 3, 6);
  put(&far, 4, 0xfffffff0, 4);
  EXPECT_EQ(media::exif_orientation(far), 1);
  for (size_t n = 0; n < 20; ++n) {
    const Bytes whole = tiff(false, 0x112, 3, 6);
    EXPECT_EQ(media::exif_orientation(std::span(whole).first(n)), 1) << n;
  }
}

// The eight orientations of the standard: which corner of what is seen the stored first pixel is,
// and whether rows and columns are exchanged.
TEST(VisionDecode, EveryOrientationTurns) {
  auto image = Image::create(3, 2);
  ASSERT_TRUE(image.ok());
  for (size_t i = 0; i < 18; ++i) image->row(0)[i] = static_cast<uint8_t>(i / 3);
  const std::vector<std::string> seen = {"012345", "210543", "543210", "345012",
                                         "031425", "304152", "524130", "251403"};
  for (uint8_t orientation = 1; orientation <= 8; ++orientation) {
    auto out = media::turned(*image, orientation);
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(out->width, orientation >= 5 ? 2u : 3u);
    std::string order;
    for (size_t i = 0; i < 18; i += 3) order += static_cast<char>('0' + out->row(0)[i]);
    EXPECT_EQ(order, seen[orientation - 1u]) << int{orientation};
  }
}

// Noise in 256 colours: more strings than the 4096 that LZW's table holds.
TEST(VisionDecode, AGifThatFillsItsTable) {
  auto image = media::decode(read_bytes(folder() / "full-table.gif"));
  ASSERT_TRUE(image.ok()) << image.status().message();
  ASSERT_EQ(image->width, 70u);
  ASSERT_EQ(image->height, 70u);
  uint32_t state = 1;
  for (size_t i = 0; i < 4900; ++i) {
    state = state * 1664525 + 1013904223;
    const uint32_t index = state >> 24;
    ASSERT_EQ(image->row(0)[3 * i], index) << i;
    ASSERT_EQ(image->row(0)[3 * i + 2], 255 - index) << i;
  }
}

TEST(VisionDecode, ModesAreParsed) {
  EXPECT_EQ(*media::parse_decode_mode("upright"), DecodeMode::kUpright);
  EXPECT_EQ(*media::parse_decode_mode("reference"), DecodeMode::kReference);
  EXPECT_EQ(media::parse_decode_mode("Upright").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::test
