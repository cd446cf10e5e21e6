// The state of one timeline: keys and values in f16, [layer][kv head][position][head size], and for
// convolution layers the last inputs of each channel. A position's index is its place: nothing
// moves, so rewinding is forgetting, and attention reads contiguous runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "base/status.h"

namespace sluice::kv {

struct KvShape {
  std::vector<int32_t> n_head_kv;  // by layer; 0: no attention there
  int32_t dk = 0, dv = 0;
  int32_t n_ctx = 0;
  int32_t conv_width = 0;  // channels of convolution layers, 0: none
  int32_t conv_rows = 0;   // positions kept for them

  [[nodiscard]] uint64_t bytes() const;
};

class KvCache {
 public:
  [[nodiscard]] Status init(KvShape shape);

  [[nodiscard]] const KvShape& shape() const { return shape_; }
  // [n_ctx][dk] and [n_ctx][dv] of one head.
  [[nodiscard]] uint16_t* keys(int32_t layer, int32_t head) const;
  [[nodiscard]] uint16_t* values(int32_t layer, int32_t head) const;
  // The row [conv_width] f32 that position `pos` occupies in a convolution layer.
  [[nodiscard]] float* conv_row(int32_t layer, int64_t pos) const;
  // The largest position <= n from which the timeline can go on after having reached `position`.
  [[nodiscard]] int64_t rewind_limit(int64_t n, int64_t position, int32_t conv_kernel) const;

  // Serialised state of the first n positions: see kv_cache.cpp for the layout.
  [[nodiscard]] uint64_t saved_bytes(int64_t n) const;
  void save(int64_t n, std::span<uint8_t> out) const;
  // False when the bytes are not a state of n positions of this shape.
  [[nodiscard]] bool restore(int64_t n, std::span<const uint8_t> in);

 private:
  KvShape shape_;
  std::vector<uint64_t> layer_offset_;  // in f16 elements, or bytes/2 for convolution rows
  AlignedBuffer memory_;
};

}  // namespace sluice::kv
