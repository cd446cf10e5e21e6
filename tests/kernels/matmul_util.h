// Random weights, and a matrix multiplication with all its buffers in exact sizes, for the tests of
// matrix multiplication and packing.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "kernels/blocks.h"
#include "kernels/kernels.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/tables_util.h"

namespace sluice::kernels {

struct WeightType {
  Type type;
  const char* name;
  // Normalized mean squared error compared with exact products of the exact activations. f32 types
  // only round sums. The others round activations to 8 bits, which costs about 3e-5 on normal
  // values for any type.
  double budget;
  std::vector<size_t> halves;  // byte offsets of f16 scales in a block: random bits would be NaN
};
// Byte offsets of the f16 numbers of a block.
template <typename Block>
std::vector<size_t> halves() {
  std::vector<size_t> at;
  if constexpr (requires(Block b) { b.d; }) at.push_back(offsetof(Block, d));
  if constexpr (requires(Block b) { b.m; }) at.push_back(offsetof(Block, m));
  if constexpr (requires(Block b) { b.dmin; }) at.push_back(offsetof(Block, dmin));
  return at;
}
inline const std::vector<WeightType>& weight_types() {
  constexpr double kSums = 1e-12, kRounded = 6e-5;
  static const std::vector<WeightType> all = {
#define SLUICE_ELEMENT_TYPE(NAME, name, id, bytes) {Type::k##NAME, #NAME, kSums, {}},
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) \
  {Type::k##NAME, #NAME, kRounded, halves<Block##NAME>()},
#include "kernels/types.def"
  };
  return all;
}

// IQ1_M has its scale in the upper four bits of four words.
inline void put_iq1_m_scale(uint8_t* block, f16 scale) {
  for (int w = 0; w < 4; ++w) {
    uint8_t& high = block[offsetof(BlockIQ1_M, scales) + static_cast<size_t>(2 * w + 1)];
    high = static_cast<uint8_t>((high & 15) | (scale >> 4 * w & 15) << 4);
  }
}
// rows x cols weights in file layout: random bits with sane scales.
inline std::vector<uint8_t> random_weights(const WeightType& w, int64_t rows, int64_t cols,
                                           uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) * reference::row_bytes(w.type, cols));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  const size_t block = reference::block_bytes(w.type);
  for (size_t at = 0; at < bytes.size(); at += block) {
    const float value = normal(rng);
    const f16 half = reference::f32_to_f16(value);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint16_t brain = static_cast<uint16_t>(bits >> 16);
    if (w.type == Type::kF32) std::memcpy(&bytes[at], &value, 4);
    if (w.type == Type::kF16) std::memcpy(&bytes[at], &half, 2);
    if (w.type == Type::kBF16) std::memcpy(&bytes[at], &brain, 2);
    if (w.type == Type::kMXFP4) bytes[at] = static_cast<uint8_t>(120 + rng() % 8);
    if (w.type == Type::kIQ1_M) put_iq1_m_scale(&bytes[at], half);
    for (size_t offset : w.halves) {
      const f16 scale = reference::f32_to_f16(normal(rng));
      std::memcpy(&bytes[at + offset], &scale, 2);
    }
  }
  return bytes;
}

// Memory that starts `skew` bytes after a 64-byte boundary and ends exactly at its size, so that
// the address sanitizer sees the first byte past the end.
class Buffer {
 public:
  explicit Buffer(size_t n, size_t skew = 0)
      : raw_(static_cast<uint8_t*>(::operator new(n + skew, kLine))), skew_(skew) {}
  Buffer(const void* src, size_t n, size_t skew) : Buffer(n, skew) { std::memcpy(data(), src, n); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { ::operator delete(raw_, kLine); }
  uint8_t* data() const { return raw_ + skew_; }

 private:
  static constexpr std::align_val_t kLine{64};
  uint8_t* raw_;
  size_t skew_;
};

inline std::vector<uint8_t> pack(const Table& table, Type type, const std::vector<uint8_t>& file,
                                 int64_t rows, int64_t cols) {
  const size_t group = table.packed_group_bytes(type, cols);
  const size_t row_bytes = reference::row_bytes(type, cols);
  Buffer buffer(group);
  std::vector<uint8_t> packed;
  for (int64_t row = 0; row < rows; row += table.row_group) {
    const int64_t left = rows - row;
    const int32_t n = left < table.row_group ? static_cast<int32_t>(left) : table.row_group;
    std::memset(buffer.data(), 0, group);
    const Buffer src(&file[static_cast<size_t>(row) * row_bytes],
                     static_cast<size_t>(n) * row_bytes, 0);
    table.pack_group(type, src.data(), n, cols, buffer.data());
    packed.insert(packed.end(), buffer.data(), buffer.data() + group);
  }
  return packed;
}

// One multiplication and its inputs; y is returned as [tokens][rows].
struct Problem {
  const Table& table;
  const WeightType& type;
  int64_t rows, cols;
  int32_t n_tokens;
  std::vector<uint8_t> file, packed;
  std::vector<float> x;

  Problem(const Table& t, const WeightType& w, int64_t n_rows, int64_t n_cols, int32_t n)
      : table(t), type(w), rows(n_rows), cols(n_cols), n_tokens(n) {
    const uint32_t seed = static_cast<uint32_t>(rows * 31 + cols * 17 + n);
    file = random_weights(type, rows, cols, seed);
    packed = pack(table, type.type, file, rows, cols);
    std::mt19937 rng(seed + 1);
    std::normal_distribution<float> normal;
    x.resize(static_cast<size_t>(cols * n));
    for (float& v : x) v = normal(rng);
  }

  struct Options {
    bool packed = true;
    int64_t r0 = 0, r1 = -1;  // -1: all rows
    int32_t t0 = 0, n = -1;   // -1: all tokens from t0
    size_t skew = 0;          // misalignment of the file layout, in bytes
    const float* bias = nullptr;
    float scale = 1.0f, factor = 1.0f;
    bool add = false;
    float fill = 0.0f;  // initial value of y
  };
  std::vector<float> run(const Options& o) const {
    const int32_t n = o.n < 0 ? n_tokens - o.t0 : o.n;
    const size_t per_token = table.q8_bytes(cols), floats = static_cast<size_t>(cols * n);
    const Buffer acts(&x[static_cast<size_t>(o.t0 * cols)], floats * sizeof(float), 0);
    const float* first = reinterpret_cast<const float*>(acts.data());
    const Buffer q8(per_token * static_cast<size_t>(n));
    table.quantize_q8(first, cols, cols, n, q8.data());
    const std::vector<uint8_t>& form = o.packed ? packed : file;
    const Buffer weights(form.data(), form.size(), o.skew);
    const Buffer scratch(table.matmul_scratch(type.type, cols));
    std::vector<float> y(static_cast<size_t>(rows * n), o.fill);
    MatmulArgs a = {};
    a.w = {type.type, o.packed, rows, cols, weights.data()};
    a.r0 = o.r0;
    a.r1 = o.r1 < 0 ? rows : o.r1;
    a.x = {first, cols, q8.data(), n};
    a.bias = o.bias;
    a.scale = o.scale;
    a.factor = o.factor;
    a.add = o.add;
    a.y = y.data();
    a.ldy = rows;
    a.scratch = scratch.data();
    table.matmul(a);
    return y;
  }
};

}  // namespace sluice::kernels
