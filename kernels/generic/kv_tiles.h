// Products with quantized keys and values, read as they lie (kernels.h): a tile of 32 x 32 codes
// times int8, lane by lane, so that no sum crosses lanes. Keys and values are the same product. Of
// keys the lanes are positions and one factor is the query; of values they are channels, and the
// factors are the weights of 32 positions, each times its position's scale, rounded to int8 anew
// for every 32 channels. Integer sums are exact, and the rest is one fixed chain for a row.
#pragma once

#include "kernels/generic/acts.h"
#include "kernels/generic/unroll.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kKvVectors = kKvTile / kLanes;
static_assert(kKvTile == kActValues);

SLUICE_INLINE float bf16_value(const uint8_t* p) {
  uint16_t high;
  memcpy(&high, p, sizeof high);
  const uint32_t bits = static_cast<uint32_t>(high) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

SLUICE_INLINE int32_t kv_tiles(int32_t n) {
  return (n + kKvTile - 1) / kKvTile;
}

// What a code stands for, before scales: table[code] - middle; of eight bits the code itself.
struct Levels {
  const int8_t* table;
  int32_t middle;
};
inline constexpr int8_t kEvenLevels[16] = {0, 2, 4, 6};  // code - 1.5, twice
SLUICE_INLINE Levels levels_of(KvType type, bool by_channel) {
  if (by_channel) return {kEvenLevels, 3};
  if (type == KvType::kQ4_0) return {kKvLevels4, kKvMiddle4};
  return {kKvLevels2, kKvMiddle2};
}

inline constexpr uint16_t kBf16One = 0x3f80;
inline constexpr uint16_t kUnscaled[kKvTile] = {
    kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One,
    kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One,
    kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One,
    kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One, kBf16One};

// The tiles of kKvTile positions.
struct Tiles {
  int32_t bits;
  Levels levels;
  const uint8_t* codes;
  int64_t stride;         // in bytes, from tile to tile
  const uint8_t* scales;  // of the positions of the first tile, bf16; null: by channel
  const uint8_t* steps;   // by channel: of the group, then its middles
  int32_t count;
};

// Those from place `start` on, a multiple of kKvTile, of vectors of n values.
SLUICE_INLINE Tiles tiles_at(KvType type, bool keys, const void* data, int64_t start, int32_t n) {
  const int32_t count = kv_tiles(n);
  const bool by_channel = keys && type == KvType::kQ2;
  const uint8_t* at = static_cast<const uint8_t*>(data);
  Tiles t{kv_bits(type), levels_of(type, by_channel), at, 0, nullptr, nullptr, count};
  t.stride = kKvTile * 4 * kv_bits(type);
  if (by_channel) {
    t.steps = at + start / kKvGroup * kKvGroup * kv_row_bytes(type, n);
    t.codes = t.steps + 4 * kKvTile * count + start % kKvGroup / kKvTile * count * t.stride;
    return t;
  }
  t.stride += 2 * kKvTile;
  t.scales = at + start / kKvTile * count * t.stride;
  t.codes = t.scales + 2 * kKvTile;
  return t;
}

// For rows r and lanes l: out[r * ld + b * step + l] += scale of the lane * x.d * (sum over i of
// code[l][i] * x.q[i]), x being x[r * ldx + b], over tiles b.
struct TileProduct {
  const uint8_t* codes;
  int64_t stride;
  Levels levels;
  const uint8_t* scales;
  int64_t scale_stride;
  int32_t count;
  const ActBlock* x;
  int64_t ldx;
  float* out;
  int64_t ld;
  int32_t step, lanes;  // lanes of tile b that are there: lanes - b * step
};

template <int kBits>
SLUICE_INLINE I32 tile_offset(const TileProduct& m, const ActBlock& x) {
  if constexpr (kBits == 8) return signed_offset(x.m.nsum);
  return splat_i32(m.levels.middle * x.m.nsum);
}

template <int kBits>
struct TileSum {
  using Type = Sum<126, 8>;
};
template <>
struct TileSum<8> {
  using Type = I32;
};

template <int kBits, int kRows>
SLUICE_NOINLINE void multiply_tiles(const TileProduct& m) {
  constexpr bool kSigned = kBits == 8;
  using S = typename TileSum<kBits>::Type;
  const uint8_t *codes = m.codes, *scales = m.scales;
  float* out = m.out;
  for (int32_t b = 0; b < m.count; ++b) {
    const ActBlock* const x = m.x + b;
    const int32_t left = m.lanes - b * m.step, lanes = left < kKvTile ? left : kKvTile;
    SLUICE_NO_UNROLL for (int32_t lane = 0; lane < lanes; lane += kLanes) {
      S sum[kRows];
      unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
        const I32 offset = tile_offset<kBits>(m, x[r * m.ldx]);
        if constexpr (kSigned) {
          sum[r] = offset;
        } else {
          sum[r] = start<S>(offset);
        }
      });
      unroll<kBits>([&](auto t) SLUICE_INLINE_LAMBDA {
        const Bytes raw = load_bytes(codes + 4 * (t * kKvTile + lane));
        if constexpr (kSigned) {
          const SignedCodes w = prepare_signed(raw);
          unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
            sum[r] = dot_signed(sum[r], w, load_signed_quad(x[r * m.ldx], t));
          });
        } else {
          unroll<8 / kBits>([&](auto s) SLUICE_INLINE_LAMBDA {
            const Bytes index = bits<s * kBits, (1 << kBits) - 1>(raw);
            const Codes w = prepare(lookup16(m.levels.table, index));
            unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
              sum[r] = dot(sum[r], w, load_quad(x[r * m.ldx], s * kBits + t));
              if ((t * 8 / kBits + s + 1) % kSettleEvery<S> == 0) settle(sum[r]);
            });
          });
        }
      });
      const F32 scale = load_bf16(scales + 2 * lane);
      unroll<kRows>([&](auto r) SLUICE_INLINE_LAMBDA {
        I32 whole;
        if constexpr (kSigned) {
          whole = sum[r];
        } else {
          whole = finish(sum[r]);
        }
        float* const to = out + r * m.ld + lane;
        store(to, mul_add(to_f32(whole), scale * splat(x[r * m.ldx].m.d), load(to)));
      });
    }
    codes += m.stride;
    scales += m.scale_stride;
    out += m.step;
  }
}

// Four rows at a time, then two, then one.
constexpr int kTileRows = 4;
template <int kBits>
void multiply_rows(TileProduct m, int n_rows) {
  while (n_rows > 0) {
    const int n = n_rows >= 4 ? 4 : n_rows >= 2 ? 2 : 1;
    (n == 4   ? multiply_tiles<kBits, 4>
     : n == 2 ? multiply_tiles<kBits, 2>
              : multiply_tiles<kBits, 1>)(m);
    n_rows -= n;
    m.x += n * m.ldx;
    m.out += n * m.ld;
  }
}
void multiply(const Tiles& t, TileProduct m, int n_rows) {
  m.codes = t.codes;
  m.stride = t.stride;
  m.levels = t.levels;
  m.count = t.count;
  if (t.bits == 8) return multiply_rows<8>(m, n_rows);
  if (t.bits == 4) return multiply_rows<4>(m, n_rows);
  multiply_rows<2>(m, n_rows);
}

// Rounds 32 values, the largest to 127, and leaves what is lost of them.
SLUICE_INLINE void round_block(F32 (&x)[kActVectors], ActBlock& out) {
  F32 peak = splat(0.0f);
  SLUICE_UNROLL for (int i = 0; i < kActVectors; ++i) peak = max(abs(x[i]), peak);
  const float largest = reduce_max(peak);
  const bool visible = largest > 1e-30f;
  out.m.d = visible ? largest / 127.0f : 0.0f;
  const F32 inverse = splat(visible ? 127.0f / largest : 0.0f), d = splat(out.m.d);
  I32 q[kActVectors];
  SLUICE_UNROLL for (int i = 0; i < kActVectors; ++i) {
    q[i] = round_i32(x[i] * inverse);
    x[i] = neg_mul_add(to_f32(q[i]), d, x[i]);
  }
  int32_t sums[2][2];
  put_values(q, out, sums);
  out.m.nsum = -(sums[0][0] + sums[0][1] + sums[1][0] + sums[1][1]);
}

// The query of keys by channel: its products with the steps of a group, and its sum with the
// middles.
SLUICE_NOINLINE float scale_query(const Tiles& t, const float* q, int32_t n, ActBlock* out) {
  F32 sum = splat(0.0f);
  for (int32_t b = 0; b < t.count; ++b) {
    F32 x[kActVectors];
    SLUICE_UNROLL for (int i = 0; i < kActVectors; ++i) {
      const int32_t c = b * kKvTile + i * kLanes, left = n - c;
      const F32 value = load_n(q + (left > 0 ? c : 0), left < 0        ? 0
                                                       : left < kLanes ? left
                                                                       : kLanes);
      sum = mul_add(value, load_bf16(t.steps + 2 * (t.count * kKvTile + c)), sum);
      x[i] = value * (load_bf16(t.steps + 2 * c) * splat(0.5f));
    }
    round_block(x, out[b]);
  }
  return reduce_add(sum);
}

// Weights of the positions times their scales, for every tile of values, in `planes` parts that
// each carry what the one before has lost. What is not seen is nothing, whatever its scale.
SLUICE_NOINLINE void scale_weights(const Tiles& t, const float* p, int planes, int64_t plane,
                                   ActBlock* out) {
  for (int32_t b = 0; b < t.count; ++b) {
    F32 x[kActVectors];
    SLUICE_UNROLL for (int i = 0; i < kActVectors; ++i) {
      const F32 weight = load(p + i * kLanes);
      const F32 scale = load_bf16(t.scales + b * t.stride + 2 * i * kLanes);
      x[i] = select(splat(0.0f) < weight, weight * scale, splat(0.0f));
    }
    for (int i = 0; i < planes; ++i) round_block(x, out[i * plane + b]);
  }
}

// Keys in tiles as f32, for latent attention, whose keys hold its values: positions [from, to) to
// rows of ld. Never by channel.
SLUICE_NOINLINE void widen_keys(const Tiles& t, int from, int to, int32_t ld, float* out) {
  const int32_t span = 4 * t.bits;
  for (int32_t c = 0; c < ld; ++c) {
    const int32_t in = c % kKvTile;
    const int64_t tile = c / kKvTile * t.stride;
    const uint8_t* codes = t.codes + tile + in % span / 4 * (4 * kKvTile) + in % 4;
    for (int i = from; i < to; ++i) {
      const int32_t code = codes[4 * i] >> (in / span * t.bits) & ((1 << t.bits) - 1);
      const int32_t level =
          t.bits == 8 ? static_cast<int8_t>(code) : t.levels.table[code] - t.levels.middle;
      out[i * ld + c] = static_cast<float>(level) * bf16_value(t.scales + tile + 2 * i);
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
