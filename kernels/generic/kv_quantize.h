// Keys and values into the forms that kernels.h describes, and the rotation before. The scale is
// the best of eight that map the largest value to different places, then the least-squares one for
// the codes found. What becomes of a row, or of a group by channel, depends on nothing else.
#pragma once

#include "kernels/generic/kv_tiles.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// --- Hadamard's transform ------------------------------------------------------------------------
// Within a vector: sums of its values by rows of signs, entry [i][j] of which is -1 to the number
// of bits that i and j share.
struct Signs {
  float row[kLanes][kLanes];
};
constexpr Signs make_signs() {
  Signs s{};
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < kLanes; ++j)
      s.row[i][j] = __builtin_parity(static_cast<unsigned>(i & j)) ? -1.0f : 1.0f;
  }
  return s;
}
constexpr Signs kSigns = make_signs();

void transform(float* x, int32_t n) {
  const float norm = 1.0f / __builtin_sqrtf(static_cast<float>(n));
  int32_t half = 1;
  if (n >= kLanes) {
    for (int32_t c = 0; c < n; c += kLanes) {
      F32 sum = splat(0.0f);
      for (int i = 0; i < kLanes; ++i) sum = mul_add(splat(x[c + i]), load(kSigns.row[i]), sum);
      store(x + c, sum * splat(norm));
    }
    half = kLanes;
  } else {
    for (int32_t c = 0; c < n; ++c) x[c] *= norm;
  }
  for (; half < n; half *= 2) {
    for (int32_t c = 0; c < n; c += 2 * half) {
      for (int32_t i = c; i < c + half; i += half < kLanes ? 1 : kLanes) {
        if (half < kLanes) {
          const float a = x[i], b = x[i + half];
          x[i] = a + b;
          x[i + half] = a - b;
        } else {
          const F32 a = load(x + i), b = load(x + i + half);
          store(x + i, a + b);
          store(x + i + half, a - b);
        }
      }
    }
  }
}

void rotate(float* x, int32_t n) {
  while (n > 0) {
    int32_t size = 1;
    while (2 * size <= n) size *= 2;
    transform(x, size);
    x += size;
    n -= size;
  }
}

// --- rows ----------------------------------------------------------------------------------------
SLUICE_INLINE float put_bf16(float x, uint8_t* out) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  const uint16_t high = static_cast<uint16_t>(bits >> 16);
  memcpy(out, &high, sizeof high);
  return bf16_value(out);
}

// 32 values, zeros where there are fewer, and which of them there are: 1 or 0.
struct KvValues {
  F32 x[kKvVectors], there[kKvVectors];
  float peak;
};
constexpr float kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

SLUICE_INLINE KvValues load_block(const float* x, int32_t from, int32_t n) {
  KvValues out;
  F32 peak = splat(0.0f);
  unroll<kKvVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
    const int32_t left = n - from - j * kLanes;
    const int count = left >= kLanes ? kLanes : left > 0 ? left : 0;
    out.x[j] = load_n(x + (count > 0 ? from + j * kLanes : 0), count);
    out.there[j] = load_n(kOnes, count);
    peak = max(abs(out.x[j]), peak);
  });
  out.peak = reduce_max(peak);
  return out;
}

// Below this the inverse overflows, and such values are nothing beside others.
constexpr float kLeastPeak = 1e-30f;

// Codes of few bits: u = code - kMiddle stands for the level kUnit (u + kCurve u^3), rounded, which
// is the table in kernels.h.
struct Levels4 {
  static constexpr int kCodes = 16;
  static constexpr float kMiddle = 7.5f, kCurve = 0.008f, kUnit = 5.7931034f, kOuter = kKvMiddle4;
  // The curve's inverse between the middles of neighbouring levels, by least squares.
  static SLUICE_INLINE_METHOD F32 flatten(F32 y) {
    const F32 y2 = y * y;
    const F32 outer = mul_add(y2, splat(1.88775938e-5f), splat(-4.46482060e-3f));
    return y * mul_add(y2, outer, splat(9.70276618e-1f));
  }
};
struct Levels2 {
  static constexpr int kCodes = 4;
  static constexpr float kMiddle = 1.5f, kCurve = 0.07f, kUnit = 33.4f, kOuter = kKvMiddle2;
  static SLUICE_INLINE_METHOD F32
  flatten(F32 y) {  // their one boundary to each side is where u is 1
    return y * splat(1.0f / (1.0f + 1.75f * kCurve));
  }
};

// code - kMiddle of the level that is nearest to y, and the level.
template <class L>
SLUICE_INLINE F32 nearest(F32 y) {
  const F32 code = round(L::flatten(y * splat(1.0f / L::kUnit)) + splat(L::kMiddle));
  return min(max(code, splat(0.0f)), splat(L::kCodes - 1)) - splat(L::kMiddle);
}
template <class L>
SLUICE_INLINE F32 level(F32 u) {
  return round(u * mul_add(u * u, splat(L::kCurve * L::kUnit), splat(L::kUnit)));
}

// Where the largest value of a block is tried, in outermost levels.
template <class L>
constexpr float kTop[8] = {};
template <>
constexpr float kTop<Levels4>[8] = {0.85f, 0.9f, 0.95f, 1.0f, 1.05f, 1.1f, 1.15f, 1.2f};
template <>
constexpr float kTop<Levels2>[8] = {0.9f, 1.0f, 1.1f, 1.2f, 1.3f, 1.4f, 1.5f, 1.6f};

// Codes of 32 values, and their scale to `scale`.
template <class L>
SLUICE_INLINE void quantize_levels(const KvValues& of, uint8_t* scale, int32_t (&codes)[kKvTile]) {
  const F32(&x)[kKvVectors] = of.x;
  const float peak = of.peak;
  float d = 0.0f, least = 0.0f;
  for (int i = 0; peak > kLeastPeak && i < 8; ++i) {
    const float tried = peak / (kTop<L>[i] * L::kOuter);
    const F32 inverse = splat(1.0f / tried), factor = splat(tried);
    F32 sum = splat(0.0f);
    unroll<kKvVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
      const F32 l = level<L>(nearest<L>(x[j] * inverse)) * of.there[j];
      const F32 e = neg_mul_add(l, factor, x[j]);
      sum = mul_add(e, e, sum);
    });
    const float error = reduce_add(sum);
    if (i == 0 || error < least) {
      least = error;
      d = tried;
    }
  }
  F32 inverse = splat(d > 0.0f ? 1.0f / d : 0.0f);
  F32 xl = splat(0.0f), ll = splat(0.0f);
  unroll<kKvVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
    const F32 l = level<L>(nearest<L>(x[j] * inverse)) * of.there[j];
    xl = mul_add(x[j], l, xl);
    ll = mul_add(l, l, ll);
  });
  d = put_bf16(d > 0.0f ? reduce_add(xl) / reduce_add(ll) : 0.0f, scale);
  inverse = splat(d > 0.0f ? 1.0f / d : 0.0f);
  unroll<kKvVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
    store(codes + j * kLanes, round_i32(nearest<L>(x[j] * inverse) + splat(L::kMiddle)));
  });
}

SLUICE_INLINE void quantize_bytes(const KvValues& of, uint8_t* scale, int32_t (&codes)[kKvTile]) {
  const float d = put_bf16(of.peak / 127.0f, scale);
  const F32 inverse = splat(of.peak > kLeastPeak ? 1.0f / d : 0.0f);
  unroll<kKvVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
    const F32 code = min(max(of.x[j] * inverse, splat(-127.0f)), splat(127.0f));
    store(codes + j * kLanes, round_i32(code));
  });
}

// --- groups --------------------------------------------------------------------------------------
// Evenly spaced levels of kLanes channels, over the positions of a group.
struct Channels {
  F32 step, mid;
  SLUICE_INLINE_METHOD F32 code(F32 x) const {  // 0 .. 3
    const F32 ok = select(splat(kLeastPeak) < step, splat(1.0f) / step, splat(0.0f));
    return min(max(round(mul_add(x - mid, ok, splat(1.5f))), splat(0.0f)), splat(3.0f));
  }
};

// Step and middle: the best of four fractions of the range, then by least squares.
SLUICE_INLINE Channels fit(const F32* x) {
  F32 low = x[0], high = x[0];
  for (int i = 1; i < kKvGroup; ++i) {
    low = min(low, x[i]);
    high = max(high, x[i]);
  }
  const F32 mid = (low + high) * splat(0.5f);
  Channels best{splat(0.0f), mid};
  F32 least = splat(3e38f);
  for (int t = 0; t < 4; ++t) {
    const Channels tried{(high - low) * splat(0.34f - 0.04f * static_cast<float>(t)), mid};
    F32 sum = splat(0.0f);
    for (int i = 0; i < kKvGroup; ++i) {
      const F32 e = x[i] - mul_add(tried.code(x[i]) - splat(1.5f), tried.step, mid);
      sum = mul_add(e, e, sum);
    }
    best.step = select(sum < least, tried.step, best.step);
    least = min(sum, least);
  }
  F32 u1 = splat(0.0f), u2 = splat(0.0f), x1 = splat(0.0f), xu = splat(0.0f);
  for (int i = 0; i < kKvGroup; ++i) {
    const F32 u = best.code(x[i]) - splat(1.5f);
    u1 = u1 + u;
    u2 = mul_add(u, u, u2);
    x1 = x1 + x[i];
    xu = mul_add(x[i], u, xu);
  }
  const F32 n = splat(kKvGroup), spread = n * u2 - u1 * u1;
  const F32 step =
      select(splat(0.5f) < spread, (n * xu - x1 * u1) / max(spread, splat(0.5f)), splat(0.0f));
  return {step, (x1 - step * u1) / n};
}

// A tile's code, to its place among zeros.
SLUICE_INLINE void put_code(uint8_t* tile, int bits, int lane, int i, int32_t code) {
  const int span = 4 * bits;
  uint8_t& to = tile[(i % span / 4 * kKvTile + lane) * 4 + i % 4];
  to = static_cast<uint8_t>(to | code << (i / span * bits));
}

// Up to `n` values of a row, zeros behind them.
SLUICE_INLINE void load_halves(const f16* row, int32_t n, float (&out)[kKvTile]) {
  f16 half[kKvTile] = {};
  memcpy(half, row, static_cast<size_t>(n < kKvTile ? n : kKvTile) * sizeof(f16));
  for (int j = 0; j < kKvTile; j += kLanes) store(out + j, load_f16(half + j));
}

void quantize_channels(const f16* rows, int32_t n, uint8_t* out) {
  const int32_t padded = kv_tiles(n) * kKvTile;
  uint8_t* const codes = out + 4 * padded;
  memset(codes, 0, static_cast<size_t>(padded) * kKvGroup / 4);
  for (int32_t c = 0; c < padded; c += kLanes) {
    F32 x[kKvGroup];
    const int left = n - c < kLanes ? n - c : kLanes;
    for (int i = 0; i < kKvGroup; ++i) {
      f16 lanes[kLanes] = {};
      if (left > 0) memcpy(lanes, rows + i * int64_t{n} + c, static_cast<size_t>(left) * 2);
      x[i] = load_f16(lanes);
    }
    Channels by = fit(x);
    float steps[kLanes], mids[kLanes];
    store(steps, by.step);
    store(mids, by.mid);
    for (int i = 0; i < kLanes; ++i) {
      steps[i] = put_bf16(steps[i], out + 2 * (c + i));
      mids[i] = put_bf16(mids[i], out + 2 * (padded + c + i));
    }
    by = {load(steps), load(mids)};
    for (int i = 0; i < kKvGroup; ++i) {
      int32_t lanes[kLanes];
      store(lanes, round_i32(by.code(x[i])));
      uint8_t* const tile = codes + 8 * (i / kKvTile * padded + c / kKvTile * kKvTile);
      for (int j = 0; j < kLanes; ++j) put_code(tile, 2, i % kKvTile, (c + j) % kKvTile, lanes[j]);
    }
  }
}

void quantize_kv_group(KvType type, bool keys, const f16* rows, int32_t n, void* out) {
  uint8_t* tile = static_cast<uint8_t*>(out);
  if (keys && type == KvType::kQ2) return quantize_channels(rows, n, tile);
  const int bits = kv_bits(type);
  const int64_t bytes = kKvTile * kv_row_bytes(type, kKvTile);
  for (int32_t first = 0; first < kKvGroup; first += kKvTile) {
    for (int32_t c = 0; c < n; c += kKvTile, tile += bytes) {
      memset(tile, 0, static_cast<size_t>(bytes));
      for (int p = 0; p < kKvTile; ++p) {
        float x[kKvTile];
        load_halves(rows + (first + p) * int64_t{n} + c, n - c, x);
        const KvValues values = load_block(x, 0, n - c);
        int32_t codes[kKvTile];
        if (type == KvType::kQ8_0) {
          quantize_bytes(values, tile + 2 * p, codes);
        } else if (type == KvType::kQ4_0) {
          quantize_levels<Levels4>(values, tile + 2 * p, codes);
        } else {
          quantize_levels<Levels2>(values, tile + 2 * p, codes);
        }
        for (int i = 0; i < kKvTile; ++i) {
          put_code(tile + 2 * kKvTile, bits, keys ? p : i, keys ? i : p,
                   codes[i] & ((1 << bits) - 1));
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
