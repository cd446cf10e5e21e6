#include "media/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice::media {
namespace {

constexpr int kFractionBits = 22;

double support_of(Filter filter) {
  return filter == Filter::kBilinear ? 1 : filter == Filter::kBicubic ? 2 : 3;
}

double sinc(double x) {
  constexpr double kPi = 3.14159265358979323846;
  return x == 0 ? 1 : std::sin(x * kPi) / (x * kPi);
}

double weight_at(Filter filter, double x) {
  x = std::fabs(x);
  if (x >= support_of(filter)) return 0;
  switch (filter) {
    case Filter::kBilinear:
      return 1 - x;
    case Filter::kBicubic: {
      constexpr double a = -0.5;
      if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
      return (((x - 5) * x + 8) * x - 4) * a;
    }
    case Filter::kLanczos:
      return sinc(x) * sinc(x / 3);
  }
  return 0;
}

// Taps of one output position.
struct Taps {
  uint32_t first, count;
};

// How one side is resized: for each output position its taps, and their weights.
struct Side {
  AlignedBuffer taps, weights;  // Taps[n], int32_t[n][stride]
  size_t stride = 0;

  [[nodiscard]] Taps at(uint32_t i) const { return taps.as<Taps>()[i]; }
  [[nodiscard]] const int32_t* weights_at(uint32_t i) const {
    return weights.as<int32_t>() + i * stride;
  }
};

size_t max_taps(uint64_t from, uint64_t to, Filter filter) {
  const double scale = std::max(static_cast<double>(from) / static_cast<double>(to), 1.0);
  return static_cast<size_t>(std::ceil(support_of(filter) * scale)) * 2 + 1;
}

Result<Side> plan_side(uint32_t from, uint32_t to, Filter filter) {
  const double scale = static_cast<double>(from) / to, widened = std::max(scale, 1.0);
  const double support = support_of(filter) * widened;
  Side side;
  side.stride = max_taps(from, to, filter);
  SLUICE_RETURN_IF_ERROR(side.taps.allocate(to * sizeof(Taps)));
  SLUICE_RETURN_IF_ERROR(side.weights.allocate(to * side.stride * sizeof(int32_t)));
  AlignedBuffer exact;
  SLUICE_RETURN_IF_ERROR(exact.allocate(side.stride * sizeof(double)));
  auto* const values = exact.as<double>();
  for (uint32_t i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int end = std::min(static_cast<int>(centre + support + 0.5), static_cast<int>(from));
    const auto count = static_cast<size_t>(end - first);
    double sum = 0;
    for (size_t k = 0; k < count; ++k) {
      const double distance = static_cast<double>(k) + first - centre + 0.5;
      values[k] = weight_at(filter, distance * (1 / widened));
      sum += values[k];
    }
    int32_t* weights = side.weights.as<int32_t>() + i * side.stride;
    for (size_t k = 0; k < count; ++k) {
      const double value = (sum != 0 ? values[k] / sum : values[k]) * (1 << kFractionBits);
      weights[k] = static_cast<int32_t>(value < 0 ? value - 0.5 : value + 0.5);
    }
    side.taps.as<Taps>()[i] = {static_cast<uint32_t>(first), static_cast<uint32_t>(count)};
  }
  return side;
}

uint8_t to_byte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

constexpr int32_t kHalf = 1 << (kFractionBits - 1);

Result<Image> resize_rows(const Image& image, uint32_t width, Filter filter) {
  Result<Side> side = plan_side(image.width, width, filter);
  if (!side.ok()) return side.status();
  Result<Image> out = Image::create(width, image.height);
  if (!out.ok()) return out;
  for (uint32_t y = 0; y < image.height; ++y) {
    uint8_t* to = out->row(y);
    for (uint32_t x = 0; x < width; ++x, to += 3) {
      const Taps taps = side->at(x);
      const int32_t* weights = side->weights_at(x);
      const uint8_t* from = image.row(y) + 3ull * taps.first;
      int32_t red = kHalf, green = kHalf, blue = kHalf;
      for (uint32_t k = 0; k < taps.count; ++k, from += 3) {
        red += from[0] * weights[k];
        green += from[1] * weights[k];
        blue += from[2] * weights[k];
      }
      to[0] = to_byte(red);
      to[1] = to_byte(green);
      to[2] = to_byte(blue);
    }
  }
  return out;
}

Result<Image> resize_columns(const Image& image, uint32_t height, Filter filter) {
  Result<Side> side = plan_side(image.height, height, filter);
  if (!side.ok()) return side.status();
  Result<Image> out = Image::create(image.width, height);
  if (!out.ok()) return out;
  const size_t n = 3 * static_cast<size_t>(image.width);
  AlignedBuffer row;
  SLUICE_RETURN_IF_ERROR(row.allocate(n * sizeof(int32_t)));
  auto* const sums = row.as<int32_t>();
  for (uint32_t y = 0; y < height; ++y) {
    const Taps taps = side->at(y);
    std::fill_n(sums, n, kHalf);
    for (uint32_t k = 0; k < taps.count; ++k) {
      const uint8_t* from = image.row(taps.first + k);
      const int32_t weight = side->weights_at(y)[k];
      for (size_t i = 0; i < n; ++i) sums[i] += from[i] * weight;
    }
    uint8_t* to = out->row(y);
    for (size_t i = 0; i < n; ++i) to[i] = to_byte(sums[i]);
  }
  return out;
}

}  // namespace

Result<Image> resize(const Image& image, uint32_t width, uint32_t height, Filter filter) {
  SLUICE_RETURN_IF_ERROR(check_size(width, height, kMaxPixels, kMaxCanvasSide));
  if (width == image.width && height == image.height) return crop(image, 0, 0, width, height);
  if (width == image.width) return resize_columns(image, height, filter);
  Result<Image> rows = resize_rows(image, width, filter);
  if (!rows.ok() || height == image.height) return rows;
  return resize_columns(*rows, height, filter);
}

uint64_t resize_bytes(uint64_t from_width, uint64_t from_height, uint64_t width, uint64_t height,
                      Filter filter) {
  const auto side = [filter](uint64_t from, uint64_t to) {
    const uint64_t taps = max_taps(from, to, filter);
    return to * (sizeof(Taps) + taps * sizeof(int32_t)) + taps * sizeof(double);
  };
  const uint64_t sums = 3 * width * sizeof(int32_t);
  return 3 * width * (from_height + height) + sums + side(from_width, width) +
         side(from_height, height) + 6 * kAlignment;
}

Result<Image> resize_to_fit(const Image& image, uint32_t width, uint32_t height, Filter filter,
                            const uint8_t background[3]) {
  const auto from_width = static_cast<float>(image.width);
  const auto from_height = static_cast<float>(image.height);
  const float scale =
      std::min(static_cast<float>(width) / from_width, static_cast<float>(height) / from_height);
  const auto side = [scale](float from, uint32_t limit) {
    return std::min(static_cast<uint32_t>(std::ceil(from * scale)), limit);
  };
  if (width == image.width && height == image.height) return crop(image, 0, 0, width, height);
  Result<Image> inner = resize(image, side(from_width, width), side(from_height, height), filter);
  if (!inner.ok() || (inner->width == width && inner->height == height)) return inner;
  Result<Image> out = Image::create(width, height);
  if (!out.ok()) return out;
  uint8_t* to = out->row(0);
  for (uint64_t i = 0; i < uint64_t{width} * height; ++i, to += 3) std::memcpy(to, background, 3);
  const uint32_t left = (width - inner->width) / 2, top = (height - inner->height) / 2;
  for (uint32_t y = 0; y < inner->height; ++y) {
    std::memcpy(out->row(top + y) + 3ull * left, inner->row(y), 3ull * inner->width);
  }
  return out;
}

Result<Image> crop(const Image& image, uint32_t x, uint32_t y, uint32_t width, uint32_t height) {
  Result<Image> out = Image::create(width, height);
  if (!out.ok()) return out;
  for (uint32_t row = 0; row < height; ++row) {
    std::memcpy(out->row(row), image.row(y + row) + 3ull * x, 3ull * width);
  }
  return out;
}

}  // namespace sluice::media
