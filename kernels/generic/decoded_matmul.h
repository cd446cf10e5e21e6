// Multiplication with types whose blocks are decoded to int8 codes first, because a code takes a
// table or several steps: a block of a row group, then its products with one or more tokens. A type
// consists of its decoder alone; everything else is shared. Packed rows are the file's words of 32
// bits, interleaved, behind the blocks' f16 scales. So they take as much memory as the file, and
// packing is a copy.
#pragma once

#if defined(__wasm__)
#include "kernels/generic/decoded_gemv.h"
#endif
#include "kernels/generic/decoded_types.h"
#include "kernels/generic/matmul.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

struct DecodedType {
  void (*decode)(const uint8_t* block, Decoded out);
#if defined(__wasm__)
  MultiplyBlock multiply;
#endif
  int values;  // of a block
  int bytes;   // of a block in the file
  bool has_scale;
  bool small;  // codes are at most kMaxSmallCode
  int scaled;  // columns that share a scale: 16 or 32
};

SLUICE_NOINLINE void pack_words(const DecodedType& k, const void* src, int32_t n_rows, int64_t cols,
                                uint8_t* dst) {
  static constexpr uint8_t kZero[kMaxDecodedBytes] = {};
  const int64_t n_blocks = cols / k.values;
  const int n_halves = k.has_scale ? 1 : 0, n_words = (k.bytes - 2 * n_halves) / 4;
  for (int64_t b = 0; b < n_blocks; ++b) {
    const uint8_t* rows[kRowGroup];
    for (int r = 0; r < kRowGroup; ++r) {
      const int64_t block = b + r * n_blocks;
      rows[r] = r < n_rows ? static_cast<const uint8_t*>(src) + block * k.bytes : kZero;
      if (k.has_scale) memcpy(dst + 2 * r, rows[r], 2);
      rows[r] += 2 * n_halves;
    }
    dst += kHalfStep * n_halves;
    const int whole = n_words / 4 * 4;
    interleave(rows, whole, dst);
    for (int j = whole; j < n_words; ++j) {
      for (int r = 0; r < kRowGroup; ++r) put_dword(dst, j, r, load_dword(rows[r] + 4 * j));
    }
    dst += kBytesStep * n_words;
  }
}

// Row `row` of a packed block, as f32. The products are exact.
SLUICE_NOINLINE void decode_row(const DecodedType& k, const uint8_t* block, int row, float* out) {
  alignas(64) uint8_t codes[kSuperBlock * kRowGroup];
  alignas(64) float scales[kSuperBlock / kHalf * kRowGroup];
  k.decode(block, {codes, scales});
  for (int i = 0; i < k.values; ++i) {
    const auto code = static_cast<int8_t>(codes[kBytesStep * (i / 4) + 4 * row + i % 4]);
    out[i] = scales[kRowGroup * (i / k.scaled) + row] * static_cast<float>(code - kCodeOffset);
  }
}
SLUICE_NOINLINE void unpack_decoded(const DecodedType& k, const uint8_t* group, int row,
                                    int64_t cols, float* out) {
  for (int64_t at = 0; at < cols; at += k.values, group += k.bytes * kRowGroup) {
    decode_row(k, group, row, out + at);
  }
}
SLUICE_NOINLINE void dequantize_decoded(const DecodedType& k, const void* src, int64_t n,
                                        float* out) {
  const uint8_t* block = static_cast<const uint8_t*>(src);
  for (int64_t at = 0; at < n; at += k.values, block += k.bytes) {
    alignas(64) uint8_t packed[kMaxDecodedBytes * kRowGroup];
    pack_words(k, block, 1, k.values, packed);
    decode_row(k, packed, 0, out + at);
  }
}

#if defined(__wasm__)  // see kHalvesOnly
#define SLUICE_UNROLL_QUADS SLUICE_NO_UNROLL
#else
#define SLUICE_UNROLL_QUADS SLUICE_UNROLL
#endif
// Sums over kQuads quads of codes, from quad kFirst of sub-block b on. Those of small codes fit in
// 16 bits, and so does their start, because sums may wrap on the way.
template <bool kSmall, int kFirst, int kQuads, int T, class F>
SLUICE_INLINE void dot_decoded(const Tokens& x, int b, const F& codes, I32 (&out)[kVecs][T]) {
  using S = Sum<kSmall ? kMaxSmallCode : kCodeOffset + kMaxCode, 8>;
  constexpr int kEvery = kSettleEvery<S> < kQuads ? kSettleEvery<S> : kQuads;
  S sum[kVecs][T];
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    const S first = start_decoded<S, kCodeShift, kFirst, kQuads>(x.at(t, b).m);
    SLUICE_UNROLL for (int v = 0; v < kVecs; ++v) sum[v][t] = first;
  }
  SLUICE_UNROLL_QUADS for (int j = 0; j < kQuads; ++j) {
    dot_quad(x, b, kFirst + j, codes, sum);
    if constexpr (kEvery < kQuads) {
      if ((j + 1) % kEvery == 0) settle_all(Ones{}, sum);
    }
  }
  if constexpr (kEvery == kQuads) settle_all(Ones{}, sum);
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    SLUICE_UNROLL for (int v = 0; v < kVecs; ++v) out[v][t] = finish(sum[v][t]);
  }
}

// Sub-block b of the decoded columns, whose halves have a scale each or one in common.
template <bool kHalves, bool kSmall, int T>
SLUICE_INLINE void multiply_sub_block(const Decoded& w, int b, const Tokens& x,
                                      F32 (&acc)[kVecs][T]) {
  const auto codes = [&](int v, int j)
                         SLUICE_INLINE_LAMBDA { return load_bytes(w.at(8 * b + j, v)); };
  constexpr int kScales = kHalves ? 2 : 1;
  F32 dw[2][kVecs];
  SLUICE_UNROLL for (int half = 0; half < kScales; ++half) {
    SLUICE_UNROLL for (int v = 0; v < kVecs; ++v) {
      dw[half][v] = load(w.scales + kRowGroup * (kScales * b + half) + kLanes * v);
    }
  }
  I32 isum[2][kVecs][T];
  if constexpr (!kHalves) {
    dot_decoded<kSmall, 0, 8>(x, b, codes, isum[0]);
    accumulate(x, b, isum[0], dw[0], acc);
  } else {
    dot_decoded<kSmall, 0, 4>(x, b, codes, isum[0]);
    dot_decoded<kSmall, 4, 4>(x, b, codes, isum[1]);
    accumulate_scaled_halves(x, b, isum[0], isum[1], dw[0], dw[1], acc);
  }
}

// Adds n_sub_blocks of decoded columns to the sums of T tokens, [token][row].
template <bool kHalves, bool kSmall, int T>
SLUICE_NOINLINE void multiply_columns(const Decoded& w, int n_sub_blocks, const Tokens& x,
                                      float* sums) {
  F32 acc[kVecs][T];
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    SLUICE_UNROLL for (int v = 0; v < kVecs; ++v) acc[v][t] =
        load(sums + kRowGroup * t + kLanes * v);
  }
  SLUICE_NO_UNROLL for (int b = 0; b < n_sub_blocks; ++b) {
    multiply_sub_block<kHalves, kSmall>(w, b, x, acc);
  }
  SLUICE_UNROLL for (int t = 0; t < T; ++t) {
    SLUICE_UNROLL for (int v = 0; v < kVecs; ++v)
        store(sums + kRowGroup * t + kLanes * v, acc[v][t]);
  }
}

template <bool kHalves, int T>
constexpr auto columns_function(bool small) {
  return kNarrowSums && small ? multiply_columns<kHalves, kNarrowSums, T>
                              : multiply_columns<kHalves, false, T>;
}
template <int T>
auto columns_function(const DecodedType& k) {
  return kHalvesOnly || k.scaled == kHalf ? columns_function<true, T>(k.small)
                                          : columns_function<kHalvesOnly, T>(k.small);
}

SLUICE_NOINLINE void put_results(const MatmulArgs& a, int64_t row, int64_t t, int n_tokens,
                                 const float* sums) {
  const int64_t n_rows = min_i64(kRowGroup, a.w.rows - row);
  for (int64_t end = t + n_tokens; t < end; ++t, sums += kRowGroup) {
    for (int v = 0; kLanes * v < n_rows; ++v) {
      const int n = static_cast<int>(min_i64(kLanes, n_rows - kLanes * v));
      put_result(a, row + kLanes * v, t, n, load(sums + kLanes * v));
    }
  }
}

// A row group times n_tokens tokens from token t0. Columns are decoded once for all of them. Their
// sums are on the stack, which is small in WebAssembly.
#if defined(__wasm__)
constexpr int kDecodedTokens = 128;
#else
constexpr int kDecodedTokens = 256;
#endif
SLUICE_NOINLINE void multiply_decoded(const DecodedType& k, const MatmulArgs& a,
                                      const uint8_t* group, int64_t row, int64_t t0, int n_tokens) {
  alignas(64) uint8_t codes[kDecodedColumns * kRowGroup];
  alignas(64) float scales[kDecodedColumns / kHalf * kRowGroup];
  alignas(64) float sums[kDecodedTokens * kRowGroup];
  memset(sums, 0, sizeof(float) * static_cast<size_t>(n_tokens * kRowGroup));
  const size_t stride = q8_bytes(a.w.cols);
  const uint8_t* x = static_cast<const uint8_t*>(a.x.q8) + static_cast<size_t>(t0) * stride;
  const int n_scales = k.values / k.scaled;
  for (int64_t left = a.w.cols; left > 0;) {
    int columns = 0;
    Decoded to = {codes, scales};
    for (; columns < kDecodedColumns && left > 0; columns += k.values, left -= k.values) {
      const int bytes = k.bytes * kRowGroup;
      for (int at = 0; a.w.packed && at < bytes; at += 64) prefetch(group + kFetchAhead + at);
      k.decode(group, to);
      group += bytes;
      to.codes += k.values * kRowGroup;
      to.scales += n_scales * kRowGroup;
    }
    for_token_tiles<kTokenTile, kMinTile>(
        n_tokens, 0, [&](auto tile, int64_t t) SLUICE_INLINE_LAMBDA {
          constexpr int T = decltype(tile)::value;
          // Its lines of y arrive while it is multiplied: 7 % of a prompt's time otherwise.
          const float* y = a.y + (t0 + t) * a.ldy + row;
          for (int i = 0; left == 0 && i < T; ++i) prefetch(y + i * a.ldy);
          columns_function<T>(k)({codes, scales}, columns / kActValues,
                                 {x + static_cast<size_t>(t) * stride, stride},
                                 sums + kRowGroup * t);
          if (left == 0) put_results(a, row, t0 + t, T, sums + kRowGroup * t);
        });
    x += sizeof(ActBlock) * static_cast<size_t>(columns / kActValues);
  }
}

#if defined(__wasm__)
// A row group times one token.
SLUICE_NOINLINE void multiply_one(const DecodedType& k, const MatmulArgs& a, const uint8_t* group,
                                  int64_t row) {
  alignas(64) float sums[kRowGroup] = {};
  const auto* x = static_cast<const ActBlock*>(a.x.q8);
  for (int64_t left = a.w.cols; left > 0; left -= k.values) {
    k.multiply(group, x, sums);
    group += k.bytes * kRowGroup;
    x += k.values / kActValues;
  }
  put_results(a, row, 0, 1, sums);
}
#endif

// A target may have faster decoders for some processors; they write the same bits.
template <class K>
void decode(const uint8_t* block, Decoded out) {
#if defined(SLUICE_FASTER_DECODERS)
  if (const auto faster = faster_decoder<K>()) return faster(block, out.codes, out.scales);
#endif
  K::decode(block, out);
}

// The functions of TypeOps for decoder K.
template <class K>
struct DecodedOps {
  static constexpr ActFormat kActs = ActFormat::kQ8;
  static constexpr DecodedType kKind = {decode<K>,
#if defined(__wasm__)
                                        one_token_function<K>(),
#endif
                                        K::kValues,
                                        static_cast<int>(sizeof(typename K::Block)),
                                        K::kHasScale,
                                        K::kSmall,
                                        K::kScaled};

  static size_t group_bytes(int64_t cols) {
    return round_up_64(static_cast<size_t>(cols / K::kValues) * sizeof(typename K::Block) *
                       kRowGroup);
  }
  static void pack_group(const void* src, int32_t n_rows, int64_t cols, void* dst) {
    pack_words(kKind, src, n_rows, cols, static_cast<uint8_t*>(dst));
  }
  static void unpack_row(const uint8_t* group, int row, int64_t cols, float* out) {
    unpack_decoded(kKind, group, row, cols, out);
  }
  static void multiply(const MatmulArgs& a, const uint8_t* group, int64_t row) {
#if defined(__wasm__)
    if (kKind.multiply && a.x.n_tokens == 1) return multiply_one(kKind, a, group, row);
#endif
    for (int32_t t = 0; t < a.x.n_tokens; t += kDecodedTokens) {
      const int64_t n = min_i64(kDecodedTokens, a.x.n_tokens - t);
      multiply_decoded(kKind, a, group, row, t, static_cast<int>(n));
    }
  }
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
