// Resizing compared with its definition in exact arithmetic, and known pixels.
#include <cmath>
#include <cstring>
#include <random>

#include "media/resize.h"
#include "vision_files.h"

namespace sluice::test {
namespace {

using media::Filter;
using media::Image;

Image random_image(uint32_t width, uint32_t height, uint32_t seed) {
  auto image = Image::create(width, height);
  EXPECT_TRUE(image.ok());
  std::mt19937 random(seed);
  for (uint64_t i = 0; i < image->size(); ++i) {
    image->row(0)[i] = static_cast<uint8_t>(random());
  }
  return std::move(*image);
}

double filter_at(Filter filter, double x) {
  const auto sinc = [](double t) { return t == 0 ? 1 : std::sin(M_PI * t) / (M_PI * t); };
  x = std::fabs(x);
  if (filter == Filter::kBilinear) return x < 1 ? 1 - x : 0;
  if (filter == Filter::kLanczos) return x < 3 ? sinc(x) * sinc(x / 3) : 0;
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

// One line of n values to m by the definition: every sample weighted by its distance.
std::vector<double> resize_line(const std::vector<double>& line, uint32_t m, Filter filter) {
  const double scale = static_cast<double>(line.size()) / m, widened = std::max(scale, 1.0);
  std::vector<double> out;
  for (uint32_t i = 0; i < m; ++i) {
    double sum = 0, weights = 0;
    for (size_t k = 0; k < line.size(); ++k) {
      const double weight =
          filter_at(filter, (static_cast<double>(k) + 0.5 - (i + 0.5) * scale) / widened);
      sum += weight * line[k];
      weights += weight;
    }
    out.push_back(std::round(std::clamp(sum / weights, 0.0, 255.0)));
  }
  return out;
}

void expect_definition(const Image& from, uint32_t width, uint32_t height, Filter filter) {
  auto image = media::resize(from, width, height, filter);
  ASSERT_TRUE(image.ok());
  for (uint32_t c = 0; c < 3; ++c) {
    std::vector<std::vector<double>> rows;
    for (uint32_t y = 0; y < from.height; ++y) {
      std::vector<double> line;
      for (uint32_t x = 0; x < from.width; ++x) line.push_back(from.row(y)[3 * x + c]);
      rows.push_back(resize_line(line, width, filter));
    }
    for (uint32_t x = 0; x < width; ++x) {
      std::vector<double> line;
      for (const auto& row : rows) line.push_back(row[x]);
      const std::vector<double> column = resize_line(line, height, filter);
      for (uint32_t y = 0; y < height; ++y) {
        // Rounding of an exact half may go either way: in each pass by one.
        ASSERT_NEAR(image->row(y)[3 * x + c], column[y], 2) << x << ", " << y;
      }
    }
  }
}

TEST(VisionResize, FollowsItsDefinition) {
  constexpr uint32_t kSides[] = {1, 2, 3, 7, 16, 29};
  std::mt19937 random(3);
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic, Filter::kLanczos}) {
    for (const uint32_t width : kSides) {
      for (const uint32_t to : kSides) {
        const uint32_t height = kSides[random() % 6];
        SCOPED_TRACE(std::to_string(width) + " to " + std::to_string(to));
        const Image image = random_image(width, height, width * 100 + to);
        expect_definition(image, to, kSides[random() % 6], filter);
      }
    }
  }
}

TEST(VisionResize, EqualSizeIsACopyAndOneColourStays) {
  const Image image = random_image(9, 5, 1);
  auto same = media::resize(image, 9, 5, Filter::kLanczos);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(std::memcmp(same->row(0), image.row(0), image.size()), 0);
  for (const int value : {0, 1, 128, 254, 255}) {
    auto flat = Image::create(11, 17);
    ASSERT_TRUE(flat.ok());
    std::memset(flat->row(0), value, flat->size());
    for (const Filter filter : {Filter::kBilinear, Filter::kBicubic, Filter::kLanczos}) {
      auto resized = media::resize(*flat, 50, 4, filter);
      ASSERT_TRUE(resized.ok());
      for (uint64_t i = 0; i < resized->size(); ++i) ASSERT_EQ(resized->row(0)[i], value);
    }
  }
}

TEST(VisionResize, FitsIntoTheMiddle) {
  const Image image = random_image(10, 4, 2);
  constexpr uint8_t kBackground[3] = {122, 116, 104};
  auto out = media::resize_to_fit(image, 20, 13, Filter::kBicubic, kBackground);
  ASSERT_TRUE(out.ok());
  auto inner = media::resize(image, 20, 8, Filter::kBicubic);
  ASSERT_TRUE(inner.ok());
  for (uint32_t y = 0; y < 13; ++y) {  // two rows above, three below
    for (uint32_t i = 0; i < 60; ++i) {
      const bool inside = y >= 2 && y < 10;
      ASSERT_EQ(out->row(y)[i], inside ? inner->row(y - 2)[i] : kBackground[i % 3]) << y;
    }
  }
}

TEST(VisionResize, SizesBeyondTheLimitAreErrors) {
  const Image image = random_image(2, 2, 4);
  EXPECT_EQ(media::resize(image, 0, 5, Filter::kBicubic).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(media::resize(image, 65535, 65535, Filter::kBicubic).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::test
