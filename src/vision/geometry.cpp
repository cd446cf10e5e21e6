#include "vision/geometry.h"

#include <algorithm>

namespace sluice::vision {
namespace {

template <class F>
void for_windows(uint32_t columns, uint32_t rows, uint32_t window, const F& f) {
  const uint32_t wide = columns / 2, high = rows / 2;
  for (uint32_t y = 0; y < high; y += window) {
    for (uint32_t x = 0; x < wide; x += window) {
      f(x, y, std::min(x + window, wide), std::min(y + window, high));
    }
  }
}

void add_square(std::vector<Cell>* out, uint32_t x, uint32_t y) {
  for (uint32_t i = 0; i < 4; ++i) {
    out->push_back({static_cast<uint16_t>(2 * y + i / 2), static_cast<uint16_t>(2 * x + i % 2)});
  }
}

float cubic(float x) {
  constexpr float kA = -0.75f;
  x = std::fabs(x);
  if (x <= 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA;
  return 0;
}

void add_taps(Positions positions, uint32_t n, uint32_t m, uint32_t place, std::vector<Tap>* out) {
  const auto last = static_cast<int64_t>(n) - 1;
  const auto clamped = [last](int64_t i) {
    return static_cast<uint32_t>(std::clamp<int64_t>(i, 0, last));
  };
  const float ratio = static_cast<float>(n) / static_cast<float>(m);
  const float centre = (static_cast<float>(place) + 0.5f) * ratio;
  switch (positions) {
    case Positions::kAligned: {
      const float at =
          m > 1 ? static_cast<float>(place) * static_cast<float>(last) / static_cast<float>(m - 1)
                : 0;
      const auto low = static_cast<int64_t>(std::floor(at));
      const float part = at - static_cast<float>(low);
      out->push_back({clamped(low), 1 - part});
      if (part > 0) out->push_back({clamped(low + 1), part});
      return;
    }
    case Positions::kAntialiased: {
      const float reach = std::max(1.0f, ratio);
      const auto low = std::max<int64_t>(0, static_cast<int64_t>(centre - reach + 0.5f));
      const auto end = std::min<int64_t>(last + 1, static_cast<int64_t>(centre + reach + 0.5f));
      const size_t first = out->size();
      float sum = 0;
      for (int64_t i = low; i < end; ++i) {
        const float x = (static_cast<float>(i) - centre + 0.5f) / reach;
        const float weight = std::max(0.0f, 1 - std::fabs(x));
        out->push_back({clamped(i), weight});
        sum += weight;
      }
      for (size_t i = first; i < out->size(); ++i) (*out)[i].weight /= sum;
      return;
    }
    case Positions::kBicubic: {
      const float at = centre - 0.5f;
      const float low = std::floor(at);
      for (int64_t i = -1; i < 3; ++i) {
        const auto index = static_cast<int64_t>(low) + i;
        out->push_back({clamped(index), cubic(at - low - static_cast<float>(i))});
      }
      return;
    }
    case Positions::kBuckets:
      out->push_back({static_cast<uint32_t>(uint64_t{n} * place / m), 1});
      return;
    case Positions::kNone:
    case Positions::kDirect:
    case Positions::kColumnAndRow:
      out->push_back({place, 1});
      return;
  }
}

}  // namespace

std::vector<Cell> order_cells(uint32_t columns, uint32_t rows, Order order, uint32_t window) {
  std::vector<Cell> out;
  out.reserve(size_t{columns} * rows);
  if (order == Order::kRaster) {
    for (uint32_t i = 0; i < columns * rows; ++i) {
      out.push_back({static_cast<uint16_t>(i / columns), static_cast<uint16_t>(i % columns)});
    }
    return out;
  }
  const uint32_t side = order == Order::kWindows ? window : std::max(columns, rows);
  for_windows(columns, rows, side, [&](uint32_t x0, uint32_t y0, uint32_t x1, uint32_t y1) {
    for (uint32_t y = y0; y < y1; ++y) {
      for (uint32_t x = x0; x < x1; ++x) add_square(&out, x, y);
    }
  });
  return out;
}

std::vector<uint32_t> window_ends(uint32_t columns, uint32_t rows, uint32_t window) {
  std::vector<uint32_t> out;
  uint32_t end = 0;
  for_windows(columns, rows, window, [&](uint32_t x0, uint32_t y0, uint32_t x1, uint32_t y1) {
    end += 4 * (x1 - x0) * (y1 - y0);
    out.push_back(end);
  });
  return out;
}

uint64_t max_taps(Positions positions, uint32_t n, uint32_t m) {
  if (positions == Positions::kAntialiased) return 2ull * ((n + m - 1) / m) + 2;
  return positions == Positions::kBicubic ? 4 : 2;
}

AxisTaps axis_taps(Positions positions, uint32_t n, uint32_t m) {
  AxisTaps out;
  out.first.reserve(m + 1);
  out.taps.reserve(static_cast<size_t>(max_taps(positions, n, m) * m));
  for (uint32_t place = 0; place < m; ++place) {
    out.first.push_back(static_cast<uint32_t>(out.taps.size()));
    add_taps(positions, n, m, place, &out.taps);
  }
  out.first.push_back(static_cast<uint32_t>(out.taps.size()));
  return out;
}

Angles rope_angles(Rope rope, int32_t head_dim) {
  switch (rope) {
    case Rope::kPixtral:
      return {.neighbours = true,
              .second_factor = std::pow(10000.0f, -2.0f / static_cast<float>(head_dim))};
    case Rope::kKimi:
      return {.row_first = false, .neighbours = true};
    case Rope::kGemma:
      return {.row_first = false, .halves = true, .base = 100};
    case Rope::kNone:
    case Rope::kVision:
      return {};
  }
  return {};
}

AxisAngles axis_angles(Rope rope, int32_t head_dim, size_t axis, uint32_t places) {
  const Angles angles = rope_angles(rope, head_dim);
  const bool second = (axis == 0) != angles.row_first;
  const auto quarter = static_cast<uint32_t>(head_dim / 4);
  AxisAngles out;
  out.cos.resize(size_t{places} * quarter);
  out.sin.resize(size_t{places} * quarter);
  for (uint32_t i = 0; i < quarter; ++i) {
    const double power = -4.0 * i / head_dim;
    const double turn = std::pow(static_cast<double>(angles.base), power) *
                        static_cast<double>(second ? angles.second_factor : 1.0f);
    for (uint32_t p = 0; p < places; ++p) {
      out.cos[size_t{p} * quarter + i] = static_cast<float>(std::cos(p * turn));
      out.sin[size_t{p} * quarter + i] = static_cast<float>(std::sin(p * turn));
    }
  }
  return out;
}

}  // namespace sluice::vision
