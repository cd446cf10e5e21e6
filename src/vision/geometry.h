// The grid of an input's patches: the order of their rows, where they lie in a table of positions,
// and the angles of their rotary positions.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "vision/program.h"

namespace sluice::vision {

struct Cell {
  uint16_t row = 0, column = 0;
};

// The patches of a grid in their order. `window`: side of a window in squares of 2 x 2 patches;
// kSquares and kWindows need even numbers.
[[nodiscard]] std::vector<Cell> order_cells(uint32_t columns, uint32_t rows, Order order,
                                            uint32_t window);
// The first row behind each window of that order.
[[nodiscard]] std::vector<uint32_t> window_ends(uint32_t columns, uint32_t rows, uint32_t window);

// Rows of a table's axis and their weights for each place of a grid's axis.
struct Tap {
  uint32_t index = 0;
  float weight = 1;
};
struct AxisTaps {
  std::vector<Tap> taps;
  std::vector<uint32_t> first;  // of each place; one more at the end
};
// From n rows to m places. kAligned, kAntialiased, kBicubic, kBuckets or, for others, row i alone.
[[nodiscard]] AxisTaps axis_taps(Positions positions, uint32_t n, uint32_t m);
// The largest number of taps of a place.
[[nodiscard]] uint64_t max_taps(Positions positions, uint32_t n, uint32_t m);

// Cosines and sines for a head's pairs: the first half of these turns by one axis, the second by
// the other. Angle of pair i of D / 4 at place p: p * factor * base^(-4i / D).
struct Angles {
  bool row_first = true;    // else the first half turns by the column
  bool neighbours = false;  // pairs (2i, 2i + 1)
  bool halves = false;      // pairs (i, i + D / 4) of each half by itself; else (i, i + D / 2)
  float base = 10000;
  float second_factor = 1;  // of the second half
};
[[nodiscard]] Angles rope_angles(Rope rope, int32_t head_dim);
// Of every place of an axis, [places][head_dim / 4]. Axis 0: rows; 1: columns.
struct AxisAngles {
  std::vector<float> cos, sin;
};
[[nodiscard]] AxisAngles axis_angles(Rope rope, int32_t head_dim, size_t axis, uint32_t places);

}  // namespace sluice::vision
