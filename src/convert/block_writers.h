// Packs fitted codes into file blocks, one function per type. kernels/blocks.h documents the bit
// layouts. Blocks of fewer than 256 values are fitted many at a time, in SIMD lanes.
#pragma once

#include "convert/super_blocks.h"
#include "convert/ternary.h"

namespace sluice::convert {
namespace {

using kernels::kQsfBlock;
using kernels::kSmallBlock;

constexpr int kTogether = 16;  // small blocks fitted together

inline uint8_t byte(int x) {
  return static_cast<uint8_t>(x);
}

// Values and weights of `count` consecutive blocks.
struct Input {
  const float *x, *w;
  int count;
};

// --- small blocks

// Scales, offsets and codes of kTogether blocks.
template <int N>
struct Small {
  using Rows = ErrorWeights<kTogether, N>;
  using F = typename Rows::F;
  Rows rows;
  F d{}, m{};
  F codes[N];
  uint8_t q[kTogether * N];

  explicit Small(const Input& in, Moments moments = Moments::kRoot) {
    rows.load(in.x, in.w, in.count, moments);
    rows.weigh(false);
  }
  [[nodiscard]] f16 scale(int l) const { return to_f16(d[l]); }
  [[nodiscard]] f16 offset(int l) const { return to_f16(m[l]); }
  [[nodiscard]] const uint8_t* of(int l) const { return q + l * N; }

  template <class Codes>
  void find_codes(int first) {
    const F inverse = inverse_of(d);
    for (int i = 0; i < N; ++i) codes[i] = Codes::code(rows.x[i] * inverse);
    codes_in_order<Rows>(codes, first, q);
  }
  template <class Codes>
  void fit_scale_alone(int first) {
    const auto error = [&](const F& scale) { return error_of<Codes>(rows, scale); };
    d = stored_by(error, fit_scale<Codes>(rows));
    find_codes<Codes>(first);
  }
  template <int MOST>
  void fit_line_alone() {
    if (N == kSmallBlock && rows.weighted) {  // as llama.cpp does
      rows.weigh(false);
    } else {
      rows.weigh_by_importance(false);
    }
    const Line<F> line = fit_line<MOST>(rows, false);
    m = as_stored(line.m);
    d = stored_by([&](const F& a) { return error_of<MOST>(rows, Line<F>{a, m}); }, line.a);
    const F inverse = inverse_of(d);
    for (int i = 0; i < N; ++i) codes[i] = line_code<MOST>(rows.x[i], {d, m}, inverse);
    codes_in_order<Rows>(codes, 0, q);
  }
  void restore_length() {
    Length<kTogether, N> length;
    for (int i = 0; i < N; ++i) length.add(rows.x[i], d * codes[i] + m, rows.importance[i]);
    const F stretch = length.stretch();
    d = magnitude(d) < all<F>(kMinNormal) ? d : as_stored(d * stretch);
    m = magnitude(m) < all<F>(kMinNormal) ? m : as_stored(m * stretch);
  }
};

template <class Codes>
Small<kSmallBlock> small_codes(const Input& in, int first, bool always_length) {
  Small<kSmallBlock> fit(in, Moments::kWhole);
  fit.fit_scale_alone<Codes>(first);
  if (always_length || !fit.rows.weighted) fit.restore_length();
  return fit;
}
template <int MOST, int N>
Small<N> small_line(const Input& in) {
  Small<N> fit(in, Moments::kWhole);
  fit.template fit_line_alone<MOST>();
  if (N != kSmallBlock || !fit.rows.weighted) fit.restore_length();
  return fit;
}

inline void pack_nibbles(const uint8_t* q, uint8_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = byte((q[i] & 15) | (q[i + 16] & 15) << 4);
}
// Bit `shift` of 32 codes.
inline void pack_bits(const uint8_t* q, int shift, uint8_t* out) {
  for (int at = 0; at < kSmallBlock / 8; ++at) {
    int bits = 0;
    for (int i = 0; i < 8; ++i) bits |= (q[8 * at + i] >> shift & 1) << i;
    out[at] = byte(bits);
  }
}

// Shared by Q4_0 and Q5_0, and by Q4_1 and Q5_1: the fifth bits are stored separately.
template <int BITS, class Block>
void pack_small(const uint8_t* q, Block* b) {
  if constexpr (BITS == 5) pack_bits(q, 4, b->qh);
  pack_nibbles(q, b->qs);
}
template <int BITS, class Codes, class Block>
void write_small_codes(const Input& in, Block* b) {
  const auto fit = small_codes<Codes>(in, 1 << (BITS - 1), BITS > 4);
  for (int l = 0; l < in.count; ++l) {
    b[l].d = fit.scale(l);
    pack_small<BITS>(fit.of(l), &b[l]);
  }
}
template <int BITS, class Block>
void write_small_line(const Input& in, Block* b) {
  const auto fit = small_line<(1 << BITS) - 1, kSmallBlock>(in);
  for (int l = 0; l < in.count; ++l) {
    b[l].d = fit.scale(l);
    b[l].m = fit.offset(l);
    pack_small<BITS>(fit.of(l), &b[l]);
  }
}

inline void write(const Input& in, kernels::BlockQ4_0* b) {
  write_small_codes<4, Whole<-8, 7, 60, 11>>(in, b);
}
inline void write(const Input& in, kernels::BlockQ5_0* b) {
  write_small_codes<5, Whole<-16, 15, 78, 10>>(in, b);
}
inline void write(const Input& in, kernels::BlockQ4_1* b) {
  write_small_line<4>(in, b);
}
inline void write(const Input& in, kernels::BlockQ5_1* b) {
  write_small_line<5>(in, b);
}
// Eight bits lose so little that plain least squares, weighted by importance only, is best.
inline void write(const Input& in, kernels::BlockQ8_0* b) {
  Small<kSmallBlock> fit(in);
  fit.rows.weigh_by_importance(false);
  fit.fit_scale_alone<Whole<-127, 127, 98, 4>>(0);
  for (int l = 0; l < in.count; ++l) {
    b[l].d = fit.scale(l);
    std::memcpy(b[l].qs, fit.of(l), kSmallBlock);
  }
}

inline uint8_t iq4_code(float value) {
  int code = 0;
  for (int i = 1; i < 16; ++i) code += value >= kernels::kIq4Values[i] ? 1 : 0;
  return byte(code);
}
inline void write(const Input& in, kernels::BlockIQ4_NL* b) {
  const auto fit = small_codes<Iq4>(in, 0, true);
  for (int l = 0; l < in.count; ++l) {
    uint8_t q[kSmallBlock];
    for (int i = 0; i < kSmallBlock; ++i) q[i] = iq4_code(fit.codes[i][l]);
    b[l].d = fit.scale(l);
    pack_nibbles(q, b[l].qs);
  }
}

// The entry of kMxfp4Values nearest to |y|; *index is its position.
template <class F>
F mxfp4_value(const F& y, F* index) {
  F value{};
  *index = F{};
  for (int i = 1; i < 8; ++i) {
    const float low = kernels::kMxfp4Values[i - 1], high = kernels::kMxfp4Values[i];
    const auto above = y > all<F>((low + high) / 2);
    value += above ? all<F>(high - low) : F{};
    *index += above ? all<F>(1) : F{};
  }
  return value;
}
inline void write(const Input& in, kernels::BlockMXFP4* b) {
  using Fit = Small<kSmallBlock>;
  using F = Fit::F;
  Fit fit(in);
  const F peak = magnitude(peak_of(fit.rows));
  // The largest value is 2^(e - 128) * 12. A smaller exponent clips it, a larger one is coarse.
  F top{}, index;  // a power of two, top <= peak
  for (int l = 0; l < kTogether; ++l) top[l] = float_of(bits_of(peak[l]) & 0x7f800000u);
  F least = all<F>(3e38f);
  for (const float share : {0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f}) {
    const F unit = top * share, inverse = inverse_of(unit);
    F error{};
    for (int i = 0; i < kSmallBlock; ++i) {
      const F size = magnitude(fit.rows.x[i]);
      const F rest = size - unit * mxfp4_value(F(size * inverse), &index);
      error += fit.rows.w[i] * rest * rest;
    }
    const auto better = (error < least) & (unit >= all<F>(0x1p-125f));
    least = better ? error : least;
    fit.d = better ? unit : fit.d;
  }
  const F inverse = inverse_of(fit.d);
  for (int i = 0; i < kSmallBlock; ++i) {
    mxfp4_value(F(magnitude(fit.rows.x[i]) * inverse), &index);
    const auto negative = (fit.rows.x[i] < F{}) & (index > F{});
    fit.codes[i] = negative ? index + 8.0f : index;
  }
  codes_in_order<Fit::Rows>(fit.codes, 0, fit.q);
  for (int l = 0; l < in.count; ++l) {
    b[l].e = byte(fit.d[l] == 0 ? 0 : static_cast<int>(bits_of(fit.d[l]) >> 23) + 1);
    pack_nibbles(fit.of(l), b[l].qs);
  }
}

// --- 256 values

template <int N>
using Parts = ErrorWeights<kSuper / N, N>;

// For types with scales only.
template <int N>
void load_parts(const Input& in, Moments moments, Parts<N>* parts) {
  parts->load(in.x, in.w, kSuper / N, moments);
  parts->weigh(true);
}
// For types with scales and offsets.
template <int N>
void load_line_parts(const Input& in, Parts<N>* parts) {
  parts->load(in.x, in.w, kSuper / N, Moments::kWhole);
  parts->weigh_by_importance(true);
}

inline void pack_two_bits(const uint8_t* q, uint8_t* out) {
  for (int h = 0; h < 2; ++h, q += 128, out += 32) {
    for (int i = 0; i < 32; ++i) {
      out[i] =
          byte((q[i] & 3) | (q[i + 32] & 3) << 2 | (q[i + 64] & 3) << 4 | (q[i + 96] & 3) << 6);
    }
  }
}
// Bit `shift` of code 32 j + i is bit j of byte i.
inline void pack_high_bits(const uint8_t* q, int shift, uint8_t* out) {
  for (int i = 0; i < 32; ++i) {
    int bits = 0;
    for (int j = 0; j < 8; ++j) bits |= (q[32 * j + i] >> shift & 1) << j;
    out[i] = byte(bits);
  }
}

inline void write(const Input& in, kernels::BlockQ2_K* b) {
  Parts<16> parts;
  load_line_parts<16>(in, &parts);
  LineParts<Parts<16>> fit;
  fit_line_parts<3, 15>(parts, &fit);
  b->d = to_f16(fit.d);
  b->dmin = to_f16(fit.dmin);
  for (int j = 0; j < 16; ++j) {
    b->scales[j] = byte(static_cast<int>(fit.scale[j]) | static_cast<int>(fit.lowest[j]) << 4);
  }
  uint8_t q[kSuper];
  codes_in_order<Parts<16>>(fit.codes, 0, q);
  pack_two_bits(q, b->qs);
}

inline void write(const Input& in, kernels::BlockQ3_K* b) {
  Parts<16> parts;
  load_parts<16>(in, Moments::kWhole, &parts);
  ScaledParts<Parts<16>> fit;
  fit_parts<Whole<-4, 3, 50, 9>, -32, 31>(parts, !parts.weighted, &fit);
  b->d = to_f16(fit.d);
  for (int j = 0; j < 16; ++j) {
    const int s = static_cast<int>(fit.scale[j]) + 32;
    uint8_t& low = b->scales[j % 8];
    low = byte(low | (s & 15) << (j < 8 ? 0 : 4));
    uint8_t& high = b->scales[8 + j % 4];
    high = byte(high | s >> 4 << 2 * (j / 4));
  }
  uint8_t q[kSuper];
  codes_in_order<Parts<16>>(fit.codes, 4, q);
  pack_two_bits(q, b->qs);
  pack_high_bits(q, 2, b->hmask);
}

inline void pack_scales_and_mins(const int* s, const int* m, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = byte(s[j] | s[j + 4] >> 4 << 6);
    out[j + 4] = byte(m[j] | m[j + 4] >> 4 << 6);
    out[j + 8] = byte((s[j + 4] & 15) | (m[j + 4] & 15) << 4);
  }
}
inline void pack_k_nibbles(const uint8_t* q, uint8_t* out) {
  for (int h = 0; h < 4; ++h, q += 64, out += 32) {
    for (int i = 0; i < 32; ++i) out[i] = byte((q[i] & 15) | (q[i + 32] & 15) << 4);
  }
}

// Shared by Q4_K and Q5_K: scales, minima and the low four bits of the codes, which go to `q`.
template <int kMax, class Block>
void write_k_lines(const Input& in, Block* b, uint8_t (&q)[kSuper]) {
  Parts<32> parts;
  load_line_parts<32>(in, &parts);
  LineParts<Parts<32>> fit;
  fit_line_parts<kMax, 63>(parts, &fit);
  b->d = to_f16(fit.d);
  b->dmin = to_f16(fit.dmin);
  int scale[8], lowest[8];
  for (int j = 0; j < 8; ++j) {
    scale[j] = static_cast<int>(fit.scale[j]);
    lowest[j] = static_cast<int>(fit.lowest[j]);
  }
  pack_scales_and_mins(scale, lowest, b->scales);
  codes_in_order<Parts<32>>(fit.codes, 0, q);
  pack_k_nibbles(q, b->qs);
}

inline void write(const Input& in, kernels::BlockQ4_K* b) {
  uint8_t q[kSuper];
  write_k_lines<15>(in, b, q);
}

inline void write(const Input& in, kernels::BlockQ5_K* b) {
  uint8_t q[kSuper];
  write_k_lines<31>(in, b, q);
  pack_high_bits(q, 4, b->qh);
}

inline void pack_six_bits(const uint8_t* q, kernels::BlockQ6_K* b) {
  for (int h = 0; h < 2; ++h, q += 128) {
    for (int i = 0; i < 64; ++i) b->ql[64 * h + i] = byte((q[i] & 15) | (q[i + 64] & 15) << 4);
    for (int i = 0; i < 32; ++i) {
      b->qh[32 * h + i] =
          byte(q[i] >> 4 | q[i + 32] >> 4 << 2 | q[i + 64] >> 4 << 4 | q[i + 96] >> 4 << 6);
    }
  }
}
inline void write(const Input& in, kernels::BlockQ6_K* b) {
  Parts<16> parts;
  load_parts<16>(in, Moments::kRoot, &parts);
  ScaledParts<Parts<16>> fit;
  fit_parts<Whole<-32, 31, 88, 6>, -128, 127>(parts, true, &fit);
  b->d = to_f16(fit.d);
  for (int j = 0; j < 16; ++j) b->scales[j] = static_cast<int8_t>(fit.scale[j]);
  uint8_t codes[kSuper];
  codes_in_order<Parts<16>>(fit.codes, 32, codes);
  pack_six_bits(codes, b);
}

inline void write(const Input& in, kernels::BlockIQ4_XS* b) {
  Parts<32> parts;
  load_parts<32>(in, Moments::kWhole, &parts);
  ScaledParts<Parts<32>> fit;
  fit_parts<Iq4, -32, 31>(parts, true, &fit);
  b->d = to_f16(fit.d);
  int high = 0;
  for (int j = 0; j < 8; ++j) {
    const int s = static_cast<int>(fit.scale[j]) + 32;
    b->scales_l[j / 2] = byte(b->scales_l[j / 2] | (s & 15) << 4 * (j % 2));
    high |= s >> 4 << 2 * j;
    for (int i = 0; i < 16; ++i) {
      b->qs[16 * j + i] = byte(iq4_code(fit.codes[i][j]) | iq4_code(fit.codes[i + 16][j]) << 4);
    }
  }
  b->scales_h = static_cast<uint16_t>(high);
}

inline void write(const Input& in, kernels::BlockTQ2_0* b) {
  uint8_t q[kSuper];
  b->d = ternary_codes<kSuper>(in.x, in.w, q);
  pack_two_bits(q, b->qs);
}

// Packs five base-3 digits, most significant first, as a fraction of 256 that is decoded digit by
// digit.
inline uint8_t base3_byte(const uint8_t* q, int stride, int digits) {
  int value = 0;
  for (int n = 0; n < 5; ++n) value = value * 3 + (n < digits ? q[n * stride] : 0);
  return byte((value * 256 + 242) / 243);
}
inline void pack_base3(const uint8_t* q, kernels::BlockTQ1_0* b) {
  for (int l = 0; l < 32; ++l) b->qs[l] = base3_byte(q + l, 32, 5);
  for (int l = 0; l < 16; ++l) b->qs[32 + l] = base3_byte(q + 160 + l, 16, 5);
  for (int l = 0; l < 4; ++l) b->qh[l] = base3_byte(q + 240 + l, 4, 4);
}
inline void write(const Input& in, kernels::BlockTQ1_0* b) {
  uint8_t q[kSuper];
  b->d = ternary_codes<kSuper>(in.x, in.w, q);
  pack_base3(q, b);
}

// --- 64 values, QSF's own types

// Codes of BITS bits, one after another, the lowest bits of a byte first.
template <int BITS, size_t BYTES>
void pack_in_order(const uint8_t* q, uint8_t (&out)[BYTES]) {
  std::memset(out, 0, BYTES);
  for (size_t at = 0; at + BITS <= 8 * BYTES; at += BITS) {
    const int bits = *q++ << at % 8;
    out[at / 8] = byte(out[at / 8] | bits);
    if (bits > 255) out[at / 8 + 1] = byte(bits >> 8);
  }
}
template <int BITS, class Block>
void write_qsf(const Input& in, Block* b) {
  const auto fit = small_line<(1 << BITS) - 1, kQsfBlock>(in);
  for (int l = 0; l < in.count; ++l) {
    b[l].d = fit.scale(l);
    b[l].m = fit.offset(l);
    pack_in_order<BITS>(fit.of(l), b[l].qs);
  }
}
inline void write(const Input& in, kernels::BlockQSF2* b) {
  write_qsf<2>(in, b);
}
inline void write(const Input& in, kernels::BlockQSF3* b) {
  write_qsf<3>(in, b);
}
inline void write(const Input& in, kernels::BlockQSF4* b) {
  write_qsf<4>(in, b);
}
inline void pack_ternary(const uint8_t* q, kernels::BlockQSFT* b) {
  std::memset(b->signs, 0, sizeof b->signs);
  std::memset(b->zeros, 0, sizeof b->zeros);
  for (int i = 0; i < kQsfBlock; ++i) {
    b->signs[i / 8] = byte(b->signs[i / 8] | (q[i] == 0 ? 1 : 0) << i % 8);
    b->zeros[i / 8] = byte(b->zeros[i / 8] | (q[i] == 1 ? 1 : 0) << i % 8);
  }
}
inline void write(const Input& in, kernels::BlockQSFT* b) {
  for (int l = 0; l < in.count; ++l) {
    uint8_t q[kQsfBlock];
    b[l].d = ternary_codes<kQsfBlock>(in.x + l * kQsfBlock, in.w + l * kQsfBlock, q);
    pack_ternary(q, &b[l]);
  }
}

}  // namespace
}  // namespace sluice::convert
