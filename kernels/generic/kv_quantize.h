// Quantizes keys and values to the layouts of kernels.h, and rotates them before. The scale starts
// as the best of eight that map the largest value to different levels, and is then the
// least-squares one for the codes found. The result for a row, or for a group by channel, depends
// on nothing else.
#pragma once

#include "kernels/generic/kv_rows.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kKvVectors = kKvBlock / kLanes;

// --- Hadamard transform --------------------------------------------------------------------------
// Within a vector: sums of its values with rows of signs. Entry [i][j] is -1 to the number of bits
// that i and j share.
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

// 32 values, zeros where there are fewer, and a 0/1 mask of those that exist.
struct KvValues {
  F32 x[kKvVectors], there[kKvVectors];
  float peak;
};
constexpr float kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

SLUICE_NOINLINE KvValues load_block(const float* x, int32_t from, int32_t n) {
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

// Below this the inverse overflows, and such values are negligible.
constexpr float kMinPeak = 1e-30f;

// code - kMiddle of the level nearest to y.
template <class L>
SLUICE_INLINE F32 nearest(F32 y) {
  const F32 code = round(L::flatten(y) + splat(L::kMiddle));
  return min(max(code, splat(0.0f)), splat(L::kCodes - 1)) - splat(L::kMiddle);
}

// Candidates for the level of a block's largest value, in units of the outermost level.
template <class L>
constexpr float kTop[8] = {};
template <>
constexpr float kTop<Levels4>[8] = {0.85f, 0.9f, 0.95f, 1.0f, 1.05f, 1.1f, 1.15f, 1.2f};
template <>
constexpr float kTop<Levels2>[8] = {0.9f, 1.0f, 1.1f, 1.2f, 1.3f, 1.4f, 1.5f, 1.6f};

// Computes the codes of 32 values and writes their scale.
template <class L>
SLUICE_INLINE void quantize_levels(const KvValues& of, uint8_t* scale, int32_t (&codes)[kKvBlock]) {
  const F32(&x)[kKvVectors] = of.x;
  const float peak = of.peak;
  float d = 0.0f, least = 0.0f;
  for (int i = 0; peak > kMinPeak && i < 8; ++i) {
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

void quantize_kv(const float* x, int32_t n, void* row) {
  uint8_t* out = static_cast<uint8_t*>(row);
  for (int32_t c = 0; c < n; c += kKvBlock, out += 34) {
    const KvValues block = load_block(x, c, n);
    const float d = put_bf16(block.peak / 127.0f, out);
    const F32 inverse = splat(block.peak > kMinPeak ? 1.0f / d : 0.0f);
    int32_t codes[kKvBlock];
    unroll<kKvVectors>([&](auto j) SLUICE_INLINE_LAMBDA {
      const F32 code = min(max(block.x[j] * inverse, splat(-127.0f)), splat(127.0f));
      store(codes + j * kLanes, round_i32(code));
    });
    for (int i = 0; i < kKvBlock; ++i) out[2 + i] = static_cast<uint8_t>(codes[i]);
  }
}

// Where the blocks of a position are: its scale and the first four bytes of its codes. `block` and
// `four` are the distances to the next block and to the next four bytes.
struct Q4Places {
  uint8_t *scale, *codes;
  int32_t block, four;
};
void quantize_row_q4(const float* x, int32_t n, Q4Places at) {
  for (int32_t c = 0; c < n; c += kKvBlock, at.scale += at.block, at.codes += at.block) {
    int32_t codes[kKvBlock];
    quantize_levels<Levels4>(load_block(x, c, n), at.scale, codes);
    for (int i = 0; i < 16; ++i) {
      at.codes[i / 4 * at.four + i % 4] = static_cast<uint8_t>(codes[i] | codes[16 + i] << 4);
    }
  }
}

void quantize_row_q2(const float* x, int32_t n, uint8_t* out) {
  for (int32_t c = 0; c < n; c += 2 * kKvBlock, out += 20) {
    int32_t codes[2][kKvBlock];
    SLUICE_NO_UNROLL for (int half = 0; half < 2; ++half) {
      quantize_levels<Levels2>(load_block(x, c + half * kKvBlock, n), out + 2 * half, codes[half]);
    }
    for (int i = 0; i < 16; ++i) {
      out[4 + i] = static_cast<uint8_t>(codes[0][i] | codes[0][16 + i] << 2 | codes[1][i] << 4 |
                                        codes[1][16 + i] << 6);
    }
  }
}

// --- groups --------------------------------------------------------------------------------------
// Evenly spaced levels of kLanes channels over the positions of a group.
struct Channels {
  F32 step, mid;
  SLUICE_INLINE_METHOD F32 code(F32 x) const {  // 0 .. 3
    const F32 ok = select(splat(kMinPeak) < step, splat(1.0f) / step, splat(0.0f));
    return min(max(round(mul_add(x - mid, ok, splat(1.5f))), splat(0.0f)), splat(3.0f));
  }
};

// Step and middle: the best of four fractions of the range, refined by least squares.
SLUICE_INLINE Channels fit(const F32* x) {
  F32 low = x[0], high = x[0];
  for (int i = 1; i < kKvGroup; ++i) {
    low = min(low, x[i]);
    high = max(high, x[i]);
  }
  const F32 mid = (low + high) * splat(0.5f);
  Channels best{splat(0.0f), mid};
  F32 least = splat(3e38f);
  SLUICE_NO_UNROLL for (int t = 0; t < 4; ++t) {
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

void quantize_channels(const f16* rows, int32_t n, uint8_t* out) {
  const int64_t padded = kv_row_bytes(KvType::kQ2, n) / 20 * 64;
  uint8_t* codes = out + 4 * padded;
  memset(codes, 0, static_cast<size_t>(16 * padded));
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
    const int shift = c % 64 / 16 * 2;
    for (int i = 0; i < kKvGroup; ++i) {
      int32_t lanes[kLanes];
      store(lanes, round_i32(by.code(x[i])));
      uint8_t* to = codes + i * (padded / 4) + c / 64 * 16 + c % 16;
      for (int j = 0; j < kLanes; ++j) to[j] = static_cast<uint8_t>(to[j] | lanes[j] << shift);
    }
  }
}

void quantize_kv_group(KvType type, bool keys, const f16* rows, int32_t n, void* out) {
  uint8_t* bytes = static_cast<uint8_t*>(out);
  if (keys && type == KvType::kQ2) return quantize_channels(rows, n, bytes);
  const int64_t row_bytes = kv_row_bytes(type, n);
  for (int i = 0; i < kKvGroup; ++i) {
    const f16* row = rows + i * int64_t{n};
    uint8_t* at = bytes + i * row_bytes;
    const int in_run = i % kKvRun;
    uint8_t* const run = at - in_run * row_bytes;
    Q4Places places{at, at + 2, 18, 4};
    if (keys) places = {run + 2 * in_run, run + 2 * kKvRun + 4 * in_run, 18 * kKvRun, 4 * kKvRun};
    for (int32_t c = 0; c < n; c += 2 * kKvBlock) {
      f16 half[2 * kKvBlock] = {};
      const int32_t left = n - c < 2 * kKvBlock ? n - c : 2 * kKvBlock;
      memcpy(half, row + c, static_cast<size_t>(left) * sizeof(f16));
      float wide[2 * kKvBlock];
      for (int j = 0; j < 2 * kKvBlock; j += kLanes) store(wide + j, load_f16(half + j));
      if (type == KvType::kQ2) {
        quantize_row_q2(wide, left, at);
        at += 20;
      } else {
        quantize_row_q4(wide, left, places);
        places.scale += 2 * places.block;
        places.codes += 2 * places.block;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
