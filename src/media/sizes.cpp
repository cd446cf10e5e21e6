#include "media/sizes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/round_up.h"

namespace sluice::media {
namespace {

float to_float(uint64_t n) {
  return static_cast<float>(n);
}
uint32_t whole(float x) {
  return static_cast<uint32_t>(x);
}

// `length` rounded to a multiple of `side`, at least one.
uint32_t rounded(uint32_t length, uint32_t side) {
  return std::max(whole(std::round(to_float(length) / to_float(side))) * side, side);
}

uint32_t rounded_up(float length, uint32_t side) {
  return std::max(whole(std::ceil(length / to_float(side))) * side, side);
}

}  // namespace

Size free_size(Size picture, uint32_t side, uint64_t min_pixels, uint64_t max_pixels) {
  const float width = to_float(picture.width), height = to_float(picture.height);
  const float pixels = to_float(picture.pixels());
  Size size{rounded(picture.width, side), rounded(picture.height, side)};
  if (size.pixels() > max_pixels) {
    const float ratio = std::sqrt(pixels / to_float(max_pixels));
    const auto down = [ratio, side](float length) {
      return std::max(whole(std::floor(length / ratio / to_float(side))) * side, side);
    };
    size = {down(width), down(height)};
  } else if (size.pixels() < min_pixels) {
    const float ratio = std::sqrt(to_float(min_pixels) / pixels);
    size = {rounded_up(width * ratio, side), rounded_up(height * ratio, side)};
  }
  if (size.pixels() > max_pixels) {
    uint32_t& longer = size.width > size.height ? size.width : size.height;
    const uint64_t line = uint64_t{side} * std::min(size.width, size.height);
    longer = std::max(static_cast<uint32_t>(max_pixels / line) * side, side);
  }
  return size;
}

Size longest_side_size(Size picture, uint32_t side, uint32_t edge) {
  const float width = to_float(picture.width), height = to_float(picture.height);
  const float scale = std::min(to_float(edge) / width, to_float(edge) / height);
  return {rounded_up(width * scale, side), rounded_up(height * scale, side)};
}

Size even_size(Size picture, uint32_t edge) {
  const float aspect = to_float(picture.width) / to_float(picture.height);
  const bool wide = picture.width >= picture.height;
  const uint32_t other = whole(wide ? to_float(edge) / aspect : to_float(edge) * aspect);
  const uint32_t even = std::max<uint32_t>(other + other % 2, 1);
  return wide ? Size{edge, even} : Size{even, edge};
}

void BestCandidate::offer(Size candidate) {
  const float width = to_float(picture_.width), height = to_float(picture_.height);
  const float scale =
      std::min(to_float(candidate.width) / width, to_float(candidate.height) / height);
  const Size scaled{whole(width * scale), whole(height * scale)};
  const uint64_t kept = std::min(scaled.pixels(), picture_.pixels());
  const uint64_t rest = candidate.pixels() - std::min(kept, candidate.pixels());
  if (best_.width > 0 && (kept < kept_ || (kept == kept_ && rest >= rest_))) return;
  best_ = candidate;
  kept_ = kept;
  rest_ = rest;
}

Size lfm2_grid(Size picture, uint32_t tile) {
  constexpr uint32_t kMinTiles = 2, kMaxTiles = 10;
  const float aspect = to_float(picture.width) / to_float(picture.height);
  const float pixels = to_float(picture.pixels());
  Size best{1, 1};
  float smallest = std::numeric_limits<float>::max();
  for (uint32_t n = kMinTiles; n <= kMaxTiles; ++n) {
    for (uint32_t columns = 1; columns <= n; ++columns) {
      if (n % columns != 0) continue;
      const uint32_t rows = n / columns;
      const float difference = std::fabs(aspect - to_float(columns) / to_float(rows));
      const uint64_t area = uint64_t{tile} * tile * n;
      const bool equal = difference == smallest;
      if (difference > smallest || (equal && pixels <= 0.5f * to_float(area))) continue;
      smallest = difference;
      best = {columns, rows};
    }
  }
  return best;
}

bool lfm2_has_tiles(Size picture, uint32_t side, uint64_t max_pixels) {
  const auto even = [side](uint32_t length) {  // halves go to the even multiple
    const double multiple = std::nearbyint(static_cast<double>(length) / side);
    return static_cast<uint64_t>(std::max(multiple, 1.0)) * side;
  };
  return even(picture.width) * even(picture.height) > 2 * max_pixels;
}

Size minicpm_size(Size picture, uint32_t z, uint32_t side, bool enlarge) {
  if (enlarge || picture.pixels() > uint64_t{z} * z) {
    const float aspect = to_float(picture.width) / to_float(picture.height);
    picture.height = whole(to_float(z) / std::sqrt(aspect));
    picture.width = whole(to_float(picture.height) * aspect);
  }
  return {rounded(picture.width, side), rounded(picture.height, side)};
}

Size minicpm_grid(Size picture, uint32_t z) {
  constexpr uint32_t kMaxSlices = 9;
  const float aspect = std::log(to_float(picture.width) / to_float(picture.height));
  const float ratio =
      to_float(picture.width) * to_float(picture.height) / to_float(uint64_t{z} * z);
  const auto n = whole(std::min(std::ceil(ratio), to_float(kMaxSlices)));
  Size best{1, 1};
  float smallest = std::numeric_limits<float>::infinity();
  for (uint32_t slices = n - 1; slices <= n + 1; ++slices) {
    if (slices == 1 || slices > kMaxSlices) continue;
    for (uint32_t columns = 1; columns <= slices; ++columns) {
      if (slices % columns != 0) continue;
      const uint32_t rows = slices / columns;
      const float difference =
          static_cast<float>(std::fabs(aspect - std::log(static_cast<double>(columns) / rows)));
      if (difference >= smallest) continue;
      smallest = difference;
      best = {columns, rows};
    }
  }
  return best;
}

Size minicpm_slice(Size picture, Size grid, uint32_t z, uint32_t side) {
  return minicpm_size({rounded(picture.width, grid.width) / grid.width,
                       rounded(picture.height, grid.height) / grid.height},
                      z, side, true);
}

}  // namespace sluice::media
