// Reads the KV cache as f32 vectors in registers, from any layout of kernels.h. Each value is a
// fixed chain of operations on its code and scale, so it is the same whether an attention tile or
// scratch loads it.
#pragma once

#include "kernels/generic/unroll.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

constexpr int kKvBlock = 32;    // values that share a scale
constexpr int kPositions = 32;  // per attention block; whole vectors on every target

constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

SLUICE_INLINE float bf16_value(const uint8_t* p) {
  uint16_t high;
  memcpy(&high, p, sizeof high);
  const uint32_t bits = static_cast<uint32_t>(high) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

#if !defined(SLUICE_WIDE_LANES)
SLUICE_INLINE F32 splat_bf16(const uint8_t* p) {
  return splat(bf16_value(p));
}
#endif

// Maps codes of few bits to levels: kUnit (u + c u^3) with u = code - kMiddle, rounded for four
// bits. flatten() maps values back.
struct Levels4 {
  static constexpr int kCodes = 16;
  static constexpr float kMiddle = 7.5f, kUnit = 63.0f / 10.875f, kCurve = 0.008f * kUnit;
  static constexpr float kOuter = kKvLevels4[15];
  // The curve's inverse at the midpoints between neighbouring levels, by least squares.
  static SLUICE_INLINE_METHOD F32 flatten(F32 y) {
    y = y * splat(1.0f / kUnit);
    const F32 y2 = y * y;
    const F32 outer = mul_add(y2, splat(1.88775938e-5f), splat(-4.46482060e-3f));
    return y * mul_add(y2, outer, splat(9.70276618e-1f));
  }
};
struct Levels2 {
  static constexpr int kCodes = 4;
  static constexpr float kMiddle = 1.5f, kUnit = 1.0f, kCurve = kKvCurve2;
  static constexpr float kOuter = kMiddle * (1.0f + kCurve * kMiddle * kMiddle);
  static SLUICE_INLINE_METHOD F32 flatten(F32 y) {  // the only boundary on each side is at u = 1
    return y * splat(1.0f / (1.0f + 1.75f * kKvCurve2));
  }
};
struct EvenLevels2 {
  static constexpr int kCodes = 4;
  static constexpr float kMiddle = 1.5f, kCurve = 0.0f;
};
struct Lifted4 {
  int8_t level[16];
};
constexpr Lifted4 lift_levels() {
  Lifted4 out{};
  for (int i = 0; i < 16; ++i) out.level[i] = static_cast<int8_t>(kKvLevels4[i] + 64);
  return out;
}
alignas(16) constexpr Lifted4 kLifted4 = lift_levels();

template <class L>
SLUICE_INLINE F32 level(F32 u) {
  if constexpr (L::kCurve == 0.0f) {
    return u;
  } else {
    const F32 curved = u * mul_add(u * u, splat(L::kCurve), splat(L::kUnit));
    return L::kUnit == 1.0f ? curved : round(curved);
  }
}

// 0, 1 .. n - 1, repeated: bits above the code's own do not matter.
struct CodeLanes {
  float lanes[kLanes];
};
constexpr CodeLanes repeat_codes(int n) {
  CodeLanes codes{};
  for (int i = 0; i < kLanes; ++i) codes.lanes[i] = static_cast<float>(i % n);
  return codes;
}
template <class L>
constexpr CodeLanes kRepeated = repeat_codes(L::kCodes);

// Levels (times the scale, if given) of the codes that begin at bit kShift of kLanes bytes. If all
// levels fit a vector they are computed once and looked up; the arithmetic is the same.
template <class L, int kShift, class... Scale>
SLUICE_INLINE F32 load_levels(const uint8_t* p, Scale... scale) {
  if constexpr (L::kCodes == 16 && kLanes < 16) {
    return (load_entries<kShift>(kKvLevels4, p) * ... * scale);
  } else {
    const auto levels = [&](F32 codes) SLUICE_INLINE_LAMBDA {
      return (level<L>(codes - splat(L::kMiddle)) * ... * scale);
    };
#if defined(SLUICE_WIDE_LANES)
    if constexpr (L::kCodes <= kLanes) return look_up<kShift>(levels(load(kRepeated<L>.lanes)), p);
#endif
    return levels(load_bits<kShift, L::kCodes - 1>(p));
  }
}

// --- layouts -------------------------------------------------------------------------------------
// A row per position of a block: row i is at data + i * stride. Only rows [from, to) may be read;
// the others may be unwritten or not exist.
enum class Form : uint8_t { kF32, kF16, kQ8, kQ4, kQ4Lanes, kQ2, kQ2Channels };
// In kQ4Lanes run i is at data + i * stride, and positions outside [from, to) may be read.
struct Rows {
  Form form;
  int from, to;
  const uint8_t* data;
  int64_t stride;           // in bytes
  const uint8_t* channels;  // for kQ2Channels: the group's steps, then its middles
  int64_t middles;          // distance from the steps to the middles, in bytes
};

// Rows of queries in f32. If keys are in lanes also as quantize_q8 output, one row after the other.
struct Queries {
  const float* data;
  int64_t ld;
  int32_t size;  // multiple of lanes
  const uint8_t* q8;
  size_t q8_stride;
  [[nodiscard]] Queries from(int row) const {
    return {data + row * ld, ld, size, q8 + static_cast<size_t>(row) * q8_stride, q8_stride};
  }
};

// The layout of a row: units of kUnit vectors in kBytes bytes. load_part<i>(p, c) is vector i of
// the unit at p; c holds what is common to a channel over a group, from column c of the rows on.
struct NoChannels {
  SLUICE_INLINE_METHOD NoChannels(const Rows&, int32_t) {}
};

struct F32Rows {
  static constexpr int kUnit = 1, kBytes = 4 * kLanes;
  using Channels = NoChannels;
  template <int>
  static SLUICE_INLINE_METHOD F32 load_part(const uint8_t* p, const Channels&) {
    return load(reinterpret_cast<const float*>(p));
  }
};
struct F16Rows {
  static constexpr int kUnit = 1, kBytes = 2 * kLanes;
  using Channels = NoChannels;
  template <int>
  static SLUICE_INLINE_METHOD F32 load_part(const uint8_t* p, const Channels&) {
    return load_f16(p);
  }
};
struct Q8Rows {
  static constexpr int kUnit = kKvBlock / kLanes, kBytes = 34;
  using Channels = NoChannels;
  template <int kPart>
  static SLUICE_INLINE_METHOD F32 load_part(const uint8_t* p, const Channels&) {
    return load_s8(p + 2 + kPart * kLanes) * splat_bf16(p);
  }
};
struct Q4Rows {
  static constexpr int kUnit = kKvBlock / kLanes, kBytes = 18;
  using Channels = NoChannels;
  template <int kPart>
  static SLUICE_INLINE_METHOD F32 load_part(const uint8_t* p, const Channels&) {
    constexpr int kAt = kPart * kLanes;
    return load_levels<Levels4, kAt / 16 * 4>(p + 2 + kAt % 16, splat_bf16(p));
  }
};
struct Q2Rows {
  static constexpr int kUnit = 2 * kKvBlock / kLanes, kBytes = 20;
  using Channels = NoChannels;
  template <int kPart>
  static SLUICE_INLINE_METHOD F32 load_part(const uint8_t* p, const Channels&) {
    constexpr int kAt = kPart * kLanes;
    const F32 scale = splat_bf16(p + kAt / kKvBlock * 2);
    return load_levels<Levels2, kAt / 16 * 2>(p + 4 + kAt % 16, scale);
  }
};
struct Q2ChannelRows {
  static constexpr int kUnit = 2 * kKvBlock / kLanes, kBytes = 16;
  struct Channels {
    F32 step, middle;
    SLUICE_INLINE_METHOD Channels(const Rows& rows, int32_t c)
        : step(load_bf16(rows.channels + 2 * c)),
          middle(load_bf16(rows.channels + rows.middles + 2 * c)) {}
  };
  template <int kPart>
  static SLUICE_INLINE_METHOD F32 load_part(const uint8_t* p, const Channels& of) {
    constexpr int kAt = kPart * kLanes;
    return mul_add(load_levels<EvenLevels2, kAt / 16 * 2>(p + kAt % 16), of.step, of.middle);
  }
};

// --- scratch -------------------------------------------------------------------------------------
// The first n values at p, then zeros.
SLUICE_INLINE F32 load_f16_n(const uint8_t* p, int n) {
  if (n >= kLanes) return load_f16(p);
  f16 padded[kLanes] = {};
  memcpy(padded, p, static_cast<size_t>(n) * sizeof(f16));
  return load_f16(padded);
}

SLUICE_NOINLINE void widen_f16(const Rows& in, int32_t cols, int32_t ld, float* out) {
  for (int i = in.from; i < in.to; ++i) {
    for (int32_t c = 0; c < cols; c += kLanes) {
      store(out + i * ld + c, load_f16_n(in.data + i * in.stride + 2 * c, cols - c));
    }
  }
}

// Stores nothing beyond ld, even if the last unit is longer.
template <class T>
SLUICE_NOINLINE void widen_units(const Rows& in, int32_t ld, float* out) {
  constexpr int kUnit = T::kUnit;
  for (int i = in.from; i < in.to; ++i) {
    const uint8_t* unit = in.data + i * in.stride;
    float* const row = out + i * ld;
    for (int32_t c = 0; c < ld; c += kUnit * kLanes, unit += T::kBytes) {
      const typename T::Channels none(in, c);
      F32 x[kUnit];
      unroll<kUnit>([&](auto part) SLUICE_INLINE_LAMBDA {
        x[part] = T::template load_part<part>(unit, none);
      });
      unroll<kUnit>([&](auto part) SLUICE_INLINE_LAMBDA {
        if (c + part * kLanes < ld) store(row + c + part * kLanes, x[part]);
      });
    }
  }
}

// Quantized by channel: steps and middles are loaded once for all rows.
SLUICE_NOINLINE void widen_channels(const Rows& in, int32_t ld, float* out) {
  using T = Q2ChannelRows;
  for (int32_t c = 0; c < ld; c += T::kUnit * kLanes) {
    const uint8_t* const unit = in.data + c / (T::kUnit * kLanes) * T::kBytes;
    unroll<4>([&](auto quarter) SLUICE_INLINE_LAMBDA {
      SLUICE_NO_UNROLL for (int j = 0; j < 16; j += kLanes) {
        const int32_t at = c + quarter * 16 + j;
        if (at >= ld) return;
        const T::Channels channels(in, at);
        for (int i = in.from; i < in.to; ++i) {
          store(out + i * ld + at,
                T::load_part<quarter * 16 / kLanes>(unit + i * in.stride + j, channels));
        }
      }
    });
  }
}

// Gathers a row's blocks from their runs.
SLUICE_NOINLINE void widen_lanes(const Rows& in, int32_t ld, float* out) {
  for (int i = in.from; i < in.to; ++i) {
    const uint8_t* block = in.data + i / kKvRun * in.stride;
    const int lane = i % kKvRun;
    for (int32_t c = 0; c < ld; c += kKvBlock, block += kKvRun * Q4Rows::kBytes) {
      uint8_t row[Q4Rows::kBytes];
      memcpy(row, block + 2 * lane, 2);
      for (int j = 0; j < 4; ++j) {
        memcpy(row + 2 + 4 * j, block + 2 * kKvRun + 4 * (kKvRun * j + lane), 4);
      }
      widen_units<Q4Rows>({Form::kQ4, 0, 1, row, 0, nullptr, 0},
                          ld - c < kKvBlock ? ld - c : kKvBlock, out + i * ld + c);
    }
  }
}

// Converts to f32 with `ld` values per row, a multiple of lanes. For f16, values from `cols` on are
// undefined.
Rows widen(const Rows& in, int32_t cols, int32_t ld, float* out) {
  switch (in.form) {
    case Form::kF32:
      return in;
    case Form::kF16:
      widen_f16(in, cols, ld, out);
      break;
    case Form::kQ8:
      widen_units<Q8Rows>(in, ld, out);
      break;
    case Form::kQ4:
      widen_units<Q4Rows>(in, ld, out);
      break;
    case Form::kQ4Lanes:
      widen_lanes(in, ld, out);
      break;
    case Form::kQ2:
      widen_units<Q2Rows>(in, ld, out);
      break;
    case Form::kQ2Channels:
      widen_channels(in, ld, out);
      break;
  }
  const uint8_t* const data = reinterpret_cast<const uint8_t*>(out);
  return {Form::kF32, in.from, in.to, data, int64_t{ld} * 4, nullptr, 0};
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
