// The drivers of matrix multiplication. GEMV and GEMM are one loop over row groups, tiles of tokens
// and K-blocks, with a tile's accumulators in registers. A group in file layout is first packed
// into scratch, so both layouts share the arithmetic. Each (row, token) pair sees the same
// operations in the same order for any tile, so results are bit-identical.
#pragma once

#include "kernels/generic/small_blocks.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

SLUICE_INLINE size_t round_up_64(size_t n) {
  return (n + 63) / 64 * 64;
}
SLUICE_INLINE int64_t min_i64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// y = (add ? y : 0) + scale * (factor * acc + bias) for n <= kLanes rows from row `row` of token t.
SLUICE_INLINE void put_result(const MatmulArgs& a, int64_t row, int64_t t, int n, F32 acc) {
  float* y = a.y + t * a.ldy + row;
  acc = acc * splat(a.factor);
  if (a.bias != nullptr) acc = acc + load_n(a.bias + row, n);
  acc = acc * splat(a.scale);
  if (a.add) acc = acc + load_n(y, n);
  store_n(y, acc, n);
}

// How many K-blocks' scales are stored together before their codes: as many as keep vectors of
// codes aligned.
template <class K>
constexpr int kChunk = K::kScaleBytes* kRowGroup % kBytesStep == 0       ? 1
                       : 2 * K::kScaleBytes* kRowGroup % kBytesStep == 0 ? 2
                                                                         : 4;

// f(codes, scales) for each K-block of a packed group.
template <class K, class Byte, class F>
SLUICE_INLINE void for_each_block(Byte* group, int64_t n_blocks, const F& f) {
  for (int64_t left = n_blocks; left > 0; left -= kChunk<K>) {
    const int n = static_cast<int>(min_i64(left, kChunk<K>));
    Byte* s = group;
    Byte* q = group + n * K::kScaleBytes * kRowGroup;
    for (int i = 0; i < n; ++i) {
      f(q, s);
      q += K::kCodeBytes * kRowGroup;
      s += K::kScaleBytes * kRowGroup;
    }
    group = q;
  }
}

static_assert(!kTiledActs || kTokenTile == kActTile);
// Tokens that do not fill a tile of this size run one by one. A tile of two is not worth its code
// size where code is downloaded.
#if defined(__wasm__)
constexpr int kMinTile = 4;
#else
constexpr int kMinTile = 2;
#endif

// Types that use dot_parts, which prefetches their codes.
template <class K>
constexpr bool kFetchesCodes = K::kType == Type::kQ3_K || K::kType == Type::kQ4_K ||
                               K::kType == Type::kQ5_K || K::kType == Type::kQ6_K;
// Sub-blocks that share bytes in dot_parts, with one token.
template <class K>
constexpr int kSumsTogether = K::kType == Type::kQ3_K || K::kType == Type::kQ6_K ? 4 : 2;
// Prefetches their scales, with one token: see kFetchAhead.
template <class K>
SLUICE_INLINE void fetch_scales(const uint8_t* scales) {
  constexpr int kScales = K::kScaleBytes * kRowGroup;
  SLUICE_UNROLL for (int i = 0; i < kScales; i += 64) prefetch(scales + kFetchAhead + i);
}

#if defined(SLUICE_HIGH_NIBBLES)
// Types whose multiplication has a variant that leaves high nibbles unshifted.
template <class K>
constexpr bool kHasHigh =
    K::kType == Type::kQ4_0 || K::kType == Type::kQ4_1 || K::kType == Type::kQ4_K;
#endif

// A group of rows times T tokens from token t0. With one token all vectors of the group run
// together and share the activation loads; with more, kTileVecs of them, as registers allow.
template <class K, int NV, int T, bool kHigh = false>
void multiply_tile(const MatmulArgs& a, const uint8_t* group, int64_t row, int64_t t0) {
  const int64_t n_blocks = a.w.cols / K::kBlock;
  const size_t stride = q8_bytes(a.w.cols);
  const int64_t n_rows = min_i64(kRowGroup, a.w.rows - row);
  for (int v0 = 0; v0 * kLanes < n_rows; v0 += NV) {
    F32 acc[NV][T];
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      SLUICE_UNROLL for (int t = 0; t < T; ++t) {
        acc[v][t] = splat(0.0f);
      }
    }
    const uint8_t* chunk = group;
    Tokens x = {static_cast<const uint8_t*>(a.x.q8) + static_cast<size_t>(t0) * stride, stride};
    constexpr int kSteps = K::kBlock / kActValues;
    x.step = (K::kCodeBytes + K::kScaleBytes) * kRowGroup / kSteps;
    // Later tiles, and weights that were just packed, find them in cache.
    const bool from_memory =
        T > 1 ? t0 == 0 && v0 == 0 && a.w.packed : K::kBlock == kSuperBlock && !kFetchesCodes<K>;
    for (int64_t left = n_blocks; left > 0; left -= kChunk<K>) {
      const int n = left < kChunk<K> ? static_cast<int>(left) : kChunk<K>;
      const uint8_t* s = chunk;
      const uint8_t* q = chunk + n * K::kScaleBytes * kRowGroup;
      chunk = q + n * K::kCodeBytes * kRowGroup;
      q += 4 * kLanes * v0;
      SLUICE_NO_UNROLL for (int i = 0; i < n; ++i) {
        if constexpr (T == 1 && kFetchesCodes<K>) fetch_scales<K>(s);
        if (from_memory) x.ahead = q + kFetchAhead;
        if constexpr (T == 1 && kFetchesCodes<K> && kMaxSums < NV * kSumsTogether<K>) {
          SLUICE_NO_UNROLL for (int v = 0; v < NV; ++v) {
            F32 one[1][1] = {{acc[v][0]}};
            K::template mul<1, 1>(q + 4 * kLanes * v, s, kLanes * (v0 + v), x, one);
            acc[v][0] = one[0][0];
          }
        } else if constexpr (kHigh) {
          K::template mul<NV, T, true>(q, s, kLanes * v0, x, acc);
        } else {
          K::template mul<NV, T>(q, s, kLanes * v0, x, acc);
        }
        q += K::kCodeBytes * kRowGroup;
        s += K::kScaleBytes * kRowGroup;
        x.base += sizeof(ActBlock) * kSteps;
      }
    }
    SLUICE_UNROLL for (int v = 0; v < NV; ++v) {
      const int64_t first = kLanes * (v0 + v);
      const int n = static_cast<int>(min_i64(kLanes, n_rows - first));
      if (n <= 0) continue;
      SLUICE_UNROLL for (int t = 0; t < T; ++t) {
        put_result(a, row + first, t0 + t, n, acc[v][t]);
      }
    }
  }
}

// Tiles of several vectors are a third of a binary's code, so only the types that most files
// consist of have them.
template <class K>
constexpr int kTileVecsOf = K::kType == Type::kQ4_0 || K::kType == Type::kQ8_0 ||
                                    K::kType == Type::kQ4_K || K::kType == Type::kQ6_K
                                ? kTileVecs
                                : 1;

// With these, a forward pass of two tokens should cost little more than one token.
template <class K>
constexpr int kMinTileOf = kTileVecsOf<K> > 1 && kTiledActs ? 2 : kMinTile;

// All tokens of a multiplication, in the largest possible tiles: f(Int<T>, first token).
template <int T, int kMin, class F>
SLUICE_INLINE void for_token_tiles(int32_t n_tokens, int64_t t, const F& f) {
  for (; t + T <= n_tokens; t += T) f(Int<T>{}, t);
  if constexpr (T > 1) for_token_tiles<(T / 2 < kMin ? 1 : T / 2), kMin>(n_tokens, t, f);
}

template <class K>
void multiply_group(const MatmulArgs& a, const uint8_t* group, int64_t row) {
  for_token_tiles<kTokenTile, kMinTileOf<K>>(
      a.x.n_tokens, 0, [&](auto tokens, int64_t t) SLUICE_INLINE_LAMBDA {
        constexpr int kTokens = decltype(tokens)::value;
        constexpr int kTogether = kTokens == 1 ? kVecs : kTileVecsOf<K>;
#if defined(SLUICE_HIGH_NIBBLES)
        if constexpr (kTokens == 1 && kHasHigh<K>) {
          if (takes_high()) return multiply_tile<K, kTogether, 1, true>(a, group, row, t);
        }
#endif
        multiply_tile<K, kTogether, kTokens>(a, group, row, t);
      });
}

template <class K>
struct Quantized {
  static constexpr ActFormat kActs = ActFormat::kQ8;

  static size_t group_bytes(int64_t cols) {
    const size_t n_blocks = static_cast<size_t>(cols / K::kBlock);
    return round_up_64(n_blocks * ((K::kCodeBytes + K::kScaleBytes) * kRowGroup));
  }
  static void pack_group(const void* src, int32_t n_rows, int64_t cols, void* dst) {
    using Block = typename K::Block;
    static constexpr Block kZero{};
    const int64_t n_blocks = cols / K::kBlock;
    const Block* base = static_cast<const Block*>(src);
    // The next group, usually the next to be packed: see Ahead in unpacked_gemv.h.
    const Block* ahead = base + kRowGroup * n_blocks;
    const auto fetch = [&]() SLUICE_INLINE_LAMBDA {
      const uint8_t* bytes = reinterpret_cast<const uint8_t*>(ahead);
      for (size_t at = 0; at < kRowGroup * sizeof(Block); at += 64) prefetch(bytes + at);
      ahead += kRowGroup;
    };
    if constexpr (K::kType == Type::kQ4_0 || K::kType == Type::kQ8_0) {
      // Blocks this small cost less than prefetching and advancing pointers to each.
      if (n_rows == kRowGroup) {
        for_each_block<K>(static_cast<uint8_t*>(dst), n_blocks, [&](uint8_t* q, uint8_t* s) {
          const Block* rows[kRowGroup];
          SLUICE_UNROLL for (int r = 0; r < kRowGroup; ++r) rows[r] = base + r * n_blocks;
          fetch();
          K::pack(rows, q, s);
          ++base;
        });
        return;
      }
    }
    const Block* rows[kRowGroup];
    for (int r = 0; r < kRowGroup; ++r) rows[r] = r < n_rows ? base + r * n_blocks : &kZero;
    for_each_block<K>(static_cast<uint8_t*>(dst), n_blocks, [&](uint8_t* q, uint8_t* s) {
      fetch();
      K::pack(rows, q, s);
      for (int r = 0; r < n_rows; ++r) ++rows[r];
    });
  }
  static void unpack_row(const uint8_t* group, int row, int64_t cols, float* out) {
    for_each_block<K>(group, cols / K::kBlock, [&](const uint8_t* q, const uint8_t* s) {
      typename K::Unpacked block;
      K::unpack(q, s, row, block);
      reference::dequantize_common(K::kType, &block, K::kBlock, out);
      out += K::kBlock;
    });
  }
  static void multiply(const MatmulArgs& a, const uint8_t* group, int64_t row) {
    multiply_group<K>(a, group, row);
  }
};

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
