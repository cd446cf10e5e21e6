// Quantization types without blocks (F32, F16, BF16) times f32 activations. Weights are packed
// element by element ([col][row]), so a vector is one column of several rows and the activation is
// a splat. Each row has two accumulators, for even and odd columns, so that the latency of the
// additions is not the limit.
#pragma once

#include "kernels/generic/matmul.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

struct WeightF32 {
  using Element = float;
  static constexpr Type kType = Type::kF32;
  SLUICE_INLINE_METHOD static F32 get(const Element* p) { return load(p); }
};
struct WeightF16 {
  using Element = uint16_t;
  static constexpr Type kType = Type::kF16;
  SLUICE_INLINE_METHOD static F32 get(const Element* p) { return load_f16(p); }
};
struct WeightBF16 {
  using Element = uint16_t;
  static constexpr Type kType = Type::kBF16;
  SLUICE_INLINE_METHOD static F32 get(const Element* p) { return load_bf16(p); }
};

template <class K, int NV, int T>
void multiply_float_tile(const MatmulArgs& a, const uint8_t* group, int64_t row, int64_t t0) {
  const int64_t n_rows = min_i64(kRowGroup, a.w.rows - row);
  const float* x = a.x.f32 + t0 * a.x.ld;
  for (int v0 = 0; v0 * kLanes < n_rows; v0 += NV) {
    F32 even[NV][T], odd[NV][T];
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      SLUICE_UNROLL for (int t = 0; t < T; ++t) {
        even[v][t] = odd[v][t] = splat(0.0f);
      }
    }
    const typename K::Element* w =
        reinterpret_cast<const typename K::Element*>(group) + kLanes * v0;
    const auto step = [&](int64_t c, F32(&acc)[NV][T]) SLUICE_INLINE_LAMBDA {
      F32 column[NV];
      SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
        column[v] = K::get(w + kLanes * v);
      }
      SLUICE_UNROLL for (int t = 0; t < T; ++t) {
        const F32 value = splat(x[t * a.x.ld + c]);
        SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
          acc[v][t] = mul_add(column[v], value, acc[v][t]);
        }
      }
      w += kRowGroup;
    };
    const bool from_memory = T > 1 && t0 == 0 && v0 == 0 && a.w.packed;  // see Tokens
    constexpr int kPairBytes = 2 * kRowGroup * sizeof(typename K::Element);
    int64_t c = 0;
    for (; c + 2 <= a.w.cols; c += 2) {
      if (from_memory) {
        const uint8_t* ahead = reinterpret_cast<const uint8_t*>(w) + kFetchAhead;
        SLUICE_UNROLL for (int i = 0; i < kPairBytes; i += 64) prefetch(ahead + i);
      }
      step(c, even);
      step(c + 1, odd);
    }
    if (c < a.w.cols) step(c, even);
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      const int64_t first = kLanes * (v0 + v);
      const int n = static_cast<int>(min_i64(kLanes, n_rows - first));
      if (n <= 0) continue;
      SLUICE_UNROLL for (int t = 0; t < T; ++t) {
        put_result(a, row + first, t0 + t, n, even[v][t] + odd[v][t]);
      }
    }
  }
}

template <class K>
struct Float {
  using Element = typename K::Element;
  static constexpr Type kType = K::kType;
  static constexpr ActFormat kActs = ActFormat::kF32;

  static size_t group_bytes(int64_t cols) {
    return round_up_64(static_cast<size_t>(cols) * sizeof(Element) * kRowGroup);
  }
  static void pack_group(const void* src, int32_t n_rows, int64_t cols, void* dst) {
    if (n_rows == kRowGroup) {
      pack_rows(src, kRowGroup, cols, dst);
    } else {
      memset(dst, 0, group_bytes(cols));
      pack_rows(src, n_rows, cols, dst);
    }
  }
  // Inlined twice, once for a constant count of rows.
  SLUICE_INLINE_METHOD static void pack_rows(const void* src, int32_t n_rows, int64_t cols,
                                             void* dst) {
    const uint8_t* in = static_cast<const uint8_t*>(src);  // elements in the file may be unaligned
    Element* out = static_cast<Element*>(dst);
    const size_t row_bytes = static_cast<size_t>(cols) * sizeof(Element);
    for (int64_t c = 0; c < cols; ++c) {
      for (int r = 0; r < n_rows; ++r) {
        memcpy(out + r, in + static_cast<size_t>(r) * row_bytes, sizeof(Element));
      }
      in += sizeof(Element);
      out += kRowGroup;
    }
  }
  static void unpack_row(const uint8_t* group, int row, int64_t cols, float* out) {
    const Element* in = reinterpret_cast<const Element*>(group) + row;
    for (int64_t c = 0; c < cols; ++c) {
      reference::dequantize_common(kType, in + c * kRowGroup, 1, out + c);
    }
  }
  static void multiply(const MatmulArgs& a, const uint8_t* group, int64_t row) {
    for_token_tiles<4, kMinTile>(a.x.n_tokens, 0, [&](auto tokens, int64_t t) SLUICE_INLINE_LAMBDA {
      constexpr int kTokens = decltype(tokens)::value;
      multiply_float_tile<K, kTokens == 1 ? kVecs : 1, kTokens>(a, group, row, t);
    });
  }
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
