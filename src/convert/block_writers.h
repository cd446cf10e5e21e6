// From fitted codes to the file's bytes, one function a type; kernels/blocks.h says where each bit
// lies.
#pragma once

#include "convert/super_blocks.h"

namespace sluice::convert {
namespace {

using kernels::kSmallBlock;

inline uint8_t byte(int x) {
  return static_cast<uint8_t>(x);
}

// --- 32 values

template <class Codes>
f16 small_codes(const float* x, const float* w, int offset, uint8_t* q) {
  const f16 d = stored_scale<Codes, kSmallBlock>(x, w, fit_scale<Codes, kSmallBlock>(x, w));
  const float stored = from_f16(d), inverse = stored == 0 ? 0 : 1 / stored;
  for (int i = 0; i < kSmallBlock; ++i) {
    q[i] = byte(static_cast<int>(Codes::code(x[i] * inverse)) + offset);
  }
  return d;
}

template <int MOST, int N = kSmallBlock>
void small_line(const float* x, const float* w, f16* d, f16* m, uint8_t* q) {
  const Line line = fit_line<MOST, N>(x, w, false);
  *m = to_f16(line.m);
  const float least = from_f16(*m);
  *d = stored_slope<MOST, N>(x, w, line.a, least);
  const float a = from_f16(*d), inverse = a == 0 ? 0 : 1 / a;
  for (int i = 0; i < N; ++i) {
    q[i] = byte(static_cast<int>(nearest(clamped((x[i] - least) * inverse, 0, MOST))));
  }
}

inline void pack_nibbles(const uint8_t* q, uint8_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = byte((q[i] & 15) | (q[i + 16] & 15) << 4);
}
inline void pack_fifth_bits(const uint8_t* q, uint8_t* out) {
  for (int i = 0; i < kSmallBlock; ++i) out[i / 8] = byte(out[i / 8] | (q[i] >> 4 & 1) << i % 8);
}

inline void write(const float* x, const float* w, kernels::BlockQ4_0* b) {
  uint8_t q[kSmallBlock];
  b->d = small_codes<Whole<-8, 7, 60, 11>>(x, w, 8, q);
  pack_nibbles(q, b->qs);
}
inline void write(const float* x, const float* w, kernels::BlockQ4_1* b) {
  uint8_t q[kSmallBlock];
  small_line<15>(x, w, &b->d, &b->m, q);
  pack_nibbles(q, b->qs);
}
inline void write(const float* x, const float* w, kernels::BlockQ5_0* b) {
  uint8_t q[kSmallBlock];
  b->d = small_codes<Whole<-16, 15, 78, 10>>(x, w, 16, q);
  pack_fifth_bits(q, b->qh);
  pack_nibbles(q, b->qs);
}
inline void write(const float* x, const float* w, kernels::BlockQ5_1* b) {
  uint8_t q[kSmallBlock];
  small_line<31>(x, w, &b->d, &b->m, q);
  pack_fifth_bits(q, b->qh);
  pack_nibbles(q, b->qs);
}
inline void write(const float* x, const float* w, kernels::BlockQ8_0* b) {
  uint8_t q[kSmallBlock];
  b->d = small_codes<Whole<-127, 127, 98, 6>>(x, w, 0, q);
  std::memcpy(b->qs, q, sizeof q);
}

inline int iq4_code(float value) {
  int code = 0;
  for (int i = 1; i < 16; ++i) code += value >= kernels::kIq4Values[i] ? 1 : 0;
  return code;
}
inline void write(const float* x, const float* w, kernels::BlockIQ4_NL* b) {
  b->d = stored_scale<Iq4, kSmallBlock>(x, w, fit_scale<Iq4, kSmallBlock>(x, w));
  const float d = from_f16(b->d), inverse = d == 0 ? 0 : 1 / d;
  uint8_t q[kSmallBlock];
  for (int i = 0; i < kSmallBlock; ++i) q[i] = byte(iq4_code(Iq4::code(x[i] * inverse)));
  pack_nibbles(q, b->qs);
}

// The index into kMxfp4Values of what is nearest to |y|.
inline int mxfp4_code(float y) {
  int code = 0;
  for (int i = 1; i < 8; ++i) {
    const float between =
        static_cast<float>(kernels::kMxfp4Values[i - 1] + kernels::kMxfp4Values[i]) / 2;
    code += y > between ? 1 : 0;
  }
  return code;
}
inline void write(const float* x, const float* w, kernels::BlockMXFP4* b) {
  const float peak = magnitude(peak_of<kSmallBlock>(x));
  // 2^(e - 128) * 12 is the largest value; one exponent less cuts it off, one more is coarse.
  const int top = static_cast<int>(bits_of(peak) >> 23) - 127;  // 2^top <= peak
  float least = 3e38f;
  int best = 0;
  for (int e = top + 128 - 4; e <= top + 128 - 1; ++e) {
    if (e < 2 || e > 254) continue;
    const float unit = float_of(static_cast<uint32_t>(e - 1) << 23), inverse = 1 / unit;
    float error = 0;
    for (int i = 0; i < kSmallBlock; ++i) {
      const float a = magnitude(x[i]);
      const float rest =
          a - unit * static_cast<float>(kernels::kMxfp4Values[mxfp4_code(a * inverse)]);
      error += w[i] * rest * rest;
    }
    if (error < least) {
      least = error;
      best = e;
    }
  }
  b->e = byte(best);
  const float inverse = best == 0 ? 0 : 1 / float_of(static_cast<uint32_t>(best - 1) << 23);
  uint8_t q[kSmallBlock];
  for (int i = 0; i < kSmallBlock; ++i) {
    const int code = mxfp4_code(magnitude(x[i]) * inverse);
    q[i] = byte(code | (x[i] < 0 && code > 0 ? 8 : 0));
  }
  pack_nibbles(q, b->qs);
}

// --- 256 values

inline void pack_two_bits(const uint8_t* q, uint8_t* out) {
  for (int i = 0; i < kSuper; ++i) {
    uint8_t& to = out[32 * (i / 128) + i % 32];
    to = byte(to | (q[i] & 3) << 2 * (i % 128 / 32));
  }
}
inline void to_bytes(const float* codes, int offset, uint8_t* q) {
  for (int i = 0; i < kSuper; ++i) q[i] = byte(static_cast<int>(codes[i]) + offset);
}

inline void write(const float* x, const float* w, kernels::BlockQ2_K* b) {
  LineParts<16> parts;
  fit_line_parts<3, 16, 15>(x, w, &parts);
  b->d = parts.d;
  b->dmin = parts.dmin;
  for (int j = 0; j < 16; ++j) b->scales[j] = byte(parts.scale[j] | parts.lowest[j] << 4);
  uint8_t q[kSuper];
  to_bytes(parts.codes, 0, q);
  pack_two_bits(q, b->qs);
}

inline void write(const float* x, const float* w, kernels::BlockQ3_K* b) {
  ScaledParts<16> parts;
  fit_parts<Whole<-4, 3, 50, 9>, 16, -32, 31>(x, w, &parts);
  b->d = parts.d;
  for (int j = 0; j < 16; ++j) {
    const int s = parts.scale[j] + 32;
    uint8_t& low = b->scales[j % 8];
    low = byte(low | (s & 15) << (j < 8 ? 0 : 4));
    uint8_t& high = b->scales[8 + j % 4];
    high = byte(high | s >> 4 << 2 * (j / 4));
  }
  uint8_t q[kSuper];
  to_bytes(parts.codes, 4, q);
  pack_two_bits(q, b->qs);
  for (int i = 0; i < kSuper; ++i) {
    b->hmask[i % 32] = byte(b->hmask[i % 32] | (q[i] >> 2 & 1) << i / 32);
  }
}

inline void pack_scales_and_mins(const int* s, const int* m, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = byte(s[j] | s[j + 4] >> 4 << 6);
    out[j + 4] = byte(m[j] | m[j + 4] >> 4 << 6);
    out[j + 8] = byte((s[j + 4] & 15) | (m[j + 4] & 15) << 4);
  }
}
inline void pack_k_nibbles(const uint8_t* q, uint8_t* out) {
  for (int i = 0; i < kSuper; ++i) {
    uint8_t& to = out[32 * (i / 64) + i % 32];
    to = byte(to | (q[i] & 15) << (i % 64 < 32 ? 0 : 4));
  }
}

// What Q4_K and Q5_K share: scales, minima and the low four bits of the codes, which go to `q`.
template <int kMost, class Block>
inline void write_k_lines(const float* x, const float* w, Block* b, uint8_t (&q)[kSuper]) {
  LineParts<32> parts;
  fit_line_parts<kMost, 32, 63>(x, w, &parts);
  b->d = parts.d;
  b->dmin = parts.dmin;
  pack_scales_and_mins(parts.scale, parts.lowest, b->scales);
  to_bytes(parts.codes, 0, q);
  pack_k_nibbles(q, b->qs);
}

inline void write(const float* x, const float* w, kernels::BlockQ4_K* b) {
  uint8_t q[kSuper];
  write_k_lines<15>(x, w, b, q);
}

inline void write(const float* x, const float* w, kernels::BlockQ5_K* b) {
  uint8_t q[kSuper];
  write_k_lines<31>(x, w, b, q);
  for (int i = 0; i < kSuper; ++i) {
    b->qh[i % 32] = byte(b->qh[i % 32] | (q[i] >> 4 & 1) << i / 32);
  }
}

inline void write(const float* x, const float* w, kernels::BlockQ6_K* b) {
  ScaledParts<16> parts;
  fit_parts<Whole<-32, 31, 88, 6>, 16, -128, 127>(x, w, &parts);
  b->d = parts.d;
  for (int j = 0; j < 16; ++j) b->scales[j] = static_cast<int8_t>(parts.scale[j]);
  uint8_t q[kSuper];
  to_bytes(parts.codes, 32, q);
  for (int i = 0; i < kSuper; ++i) {
    const int h = i / 128, p = i % 128 / 32, l = i % 32;
    uint8_t& low = b->ql[64 * h + 32 * (p % 2) + l];
    low = byte(low | (q[i] & 15) << (p < 2 ? 0 : 4));
    uint8_t& high = b->qh[32 * h + l];
    high = byte(high | q[i] >> 4 << 2 * p);
  }
}

inline void write(const float* x, const float* w, kernels::BlockIQ4_XS* b) {
  ScaledParts<32> parts;
  fit_parts<Iq4, 32, -32, 31>(x, w, &parts);
  b->d = parts.d;
  int high = 0;
  for (int j = 0; j < 8; ++j) {
    const int s = parts.scale[j] + 32;
    b->scales_l[j / 2] = byte(b->scales_l[j / 2] | (s & 15) << 4 * (j % 2));
    high |= s >> 4 << 2 * j;
    for (int i = 0; i < 16; ++i) {
      const float* codes = parts.codes + 32 * j;
      b->qs[16 * j + i] = byte(iq4_code(codes[i]) | iq4_code(codes[i + 16]) << 4);
    }
  }
  b->scales_h = static_cast<uint16_t>(high);
}

// --- ternary: whoever is nearest to zero becomes zero, and of all such cuts the best is found

struct Weighed {
  float size, w;
};
// Shell sort, largest first: short, and of a bounded number of steps for 256 values or 64.
template <int N>
void sort_down(Weighed* v) {
  for (const int gap : {132, 57, 23, 10, 4, 1}) {
    for (int i = gap; i < N; ++i) {
      const Weighed x = v[i];
      int j = i;
      for (; j >= gap && v[j - gap].size < x.size; j -= gap) v[j] = v[j - gap];
      v[j] = x;
    }
  }
}

template <int N>
float fit_ternary(const float* x, const float* w) {
  Weighed sorted[N];
  for (int i = 0; i < N; ++i) sorted[i] = {magnitude(x[i]), w[i]};
  sort_down<N>(sorted);
  double sum = 0, weight = 0, best = 0, d = 0;
  for (const Weighed& v : sorted) {  // with so many at +-d the error falls by sum^2 / weight
    sum += static_cast<double>(v.w) * v.size;
    weight += v.w;
    if (weight > 0 && sum * sum / weight > best) {
      best = sum * sum / weight;
      d = sum / weight;
    }
  }
  return static_cast<float>(d);
}
template <int N>
f16 ternary_codes(const float* x, const float* w, uint8_t* q) {
  const f16 d = to_f16(fit_ternary<N>(x, w));
  const float half = from_f16(d) / 2;
  for (int i = 0; i < N; ++i) {
    q[i] = byte(half == 0 || magnitude(x[i]) <= half ? 1 : x[i] > 0 ? 2 : 0);
  }
  return d;
}

inline void write(const float* x, const float* w, kernels::BlockTQ2_0* b) {
  uint8_t q[kSuper];
  b->d = ternary_codes<kSuper>(x, w, q);
  pack_two_bits(q, b->qs);
}

// Five digits, most significant first, as the fraction of 256 that is read back digit by digit.
inline uint8_t base3_byte(const uint8_t* q, int stride, int digits) {
  int value = 0;
  for (int n = 0; n < 5; ++n) value = value * 3 + (n < digits ? q[n * stride] : 0);
  return byte((value * 256 + 242) / 243);
}
inline void write(const float* x, const float* w, kernels::BlockTQ1_0* b) {
  uint8_t q[kSuper];
  b->d = ternary_codes<kSuper>(x, w, q);
  for (int l = 0; l < 32; ++l) b->qs[l] = base3_byte(q + l, 32, 5);
  for (int l = 0; l < 16; ++l) b->qs[32 + l] = base3_byte(q + 160 + l, 16, 5);
  for (int l = 0; l < 4; ++l) b->qh[l] = base3_byte(q + 240 + l, 4, 4);
}

// --- 64 values, QSF's own

template <int BITS>
void write_qsf(const float* x, const float* w, f16* d, f16* m, uint8_t* out) {
  uint8_t q[kernels::kQsfBlock];
  small_line<(1 << BITS) - 1, kernels::kQsfBlock>(x, w, d, m, q);
  for (int i = 0; i < kernels::kQsfBlock; ++i) {
    const int at = i * BITS, bits = q[i] << at % 8;
    out[at / 8] = byte(out[at / 8] | bits);
    if (bits > 255) out[at / 8 + 1] = byte(bits >> 8);
  }
}
inline void write(const float* x, const float* w, kernels::BlockQSF2* b) {
  write_qsf<2>(x, w, &b->d, &b->m, b->qs);
}
inline void write(const float* x, const float* w, kernels::BlockQSF3* b) {
  write_qsf<3>(x, w, &b->d, &b->m, b->qs);
}
inline void write(const float* x, const float* w, kernels::BlockQSF4* b) {
  write_qsf<4>(x, w, &b->d, &b->m, b->qs);
}
inline void write(const float* x, const float* w, kernels::BlockQSFT* b) {
  uint8_t q[kernels::kQsfBlock];
  b->d = ternary_codes<kernels::kQsfBlock>(x, w, q);
  for (int i = 0; i < kernels::kQsfBlock; ++i) {
    b->signs[i / 8] = byte(b->signs[i / 8] | (q[i] == 0 ? 1 : 0) << i % 8);
    b->zeros[i / 8] = byte(b->zeros[i / 8] | (q[i] == 1 ? 1 : 0) << i % 8);
  }
}

}  // namespace
}  // namespace sluice::convert
