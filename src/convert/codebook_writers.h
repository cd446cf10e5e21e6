// Packs fitted entries of codebooks into file blocks. kernels/blocks.h documents the bit layouts.
#pragma once

#include "convert/block_writers.h"
#include "convert/codebook_search.h"

namespace sluice::convert {
namespace {

// Values of a block with the weights of their errors, in order.
struct SuperInput {
  float x[kSuper], w[kSuper];

  explicit SuperInput(const Input& in) {
    Parts<16> parts;
    parts.load(in.x, in.w, kSuper / 16, Moments::kWhole);
    parts.weigh(true);
    for (int l = 0; l < 16; ++l) {
      for (int i = 0; i < 16; ++i) {
        x[16 * l + i] = parts.x[i][l];
        w[16 * l + i] = parts.w[i][l];
      }
    }
  }
};

// Scales and entries of a block. A sub-block has SUB values, an entry SIZE.
template <int SUB, int SIZE>
struct CodebookFit {
  static constexpr int kUnits = SUB / SIZE, kSubs = kSuper / SUB;
  BlockScales scales;
  uint8_t signs[kSuper / 8] = {};
  Match entries[kSuper / SIZE];

  [[nodiscard]] int entry(int i) const { return entries[i].entry; }
  [[nodiscard]] f16 d() const { return to_f16(scales.d); }
  void restore(float stretch) {
    if (size_of(scales.d) >= kMinNormal) scales.d = as_stored(scales.d * stretch);
  }
};

// Fits the block's scales to those that the sub-blocks want, and chooses the entries for them.
template <int MOST, int SUB, int SIZE, class Sub>
void choose_entries(const Sub (&subs)[kSuper / SUB], const float* wanted, float unit,
                    CodebookFit<SUB, SIZE>* out) {
  using Fit = CodebookFit<SUB, SIZE>;
  out->scales = fit_scales<Fit::kSubs, MOST>(subs, wanted, unit);
  for (int j = 0; j < Fit::kSubs; ++j) {
    const float c = out->scales.d * unit * static_cast<float>(2 * out->scales.scale[j] + 1);
    const int shift = subs[j].better_shift(c);
    for (int u = 0; u < Fit::kUnits; ++u) {
      out->entries[Fit::kUnits * j + u] = subs[j].units[shift][u].best(c);
    }
  }
}

// The length that the fit has lost (error_weights.h). `wanted` are the values that the entries
// stand for; value(match, i) is what value i of an entry is.
template <int SUB, int SIZE, class Value>
Length<1, kSuper> length_of(const CodebookFit<SUB, SIZE>& fit, const float* wanted,
                            const float* weights, float unit, Value&& value) {
  Length<1, kSuper> length;
  for (int i = 0; i < kSuper; ++i) {
    const float c = unit * static_cast<float>(2 * fit.scales.scale[i / SUB] + 1);
    const float is = fit.scales.d * c * value(fit.entries[i / SIZE], i % SIZE);
    using One = Lanes<1>;
    length.add(One{wanted[i]}, One{is}, One{weights[i]});
  }
  return length;
}

// Sizes of eight values and the bits of the negative ones. With `even`, their number must be even:
// if it is not, the value that matters least keeps a size below zero.
inline uint8_t split_signs(const float* x, const float* w, bool even, float* sizes) {
  int signs = 0, least = 0;
  for (int i = 0; i < 8; ++i) {
    sizes[i] = size_of(x[i]);
    if (x[i] < 0) signs ^= 1 << i;
    if (w[i] * sizes[i] < w[least] * sizes[least]) least = i;
  }
  if (even && __builtin_popcount(static_cast<unsigned>(signs)) % 2 != 0) {
    signs ^= 1 << least;
    sizes[least] = -sizes[least];
  }
  return byte(signs);
}

// For codebooks of sizes from `low` to `peak` with separate signs.
// x = d * (2 s + 1) * unit * entry, s below 16.
template <int SUB, int SIZE>
void fit_sizes(const Input& in, Codebook codebook, float low, float peak, float unit, bool even,
               CodebookFit<SUB, SIZE>* out) {
  using Fit = CodebookFit<SUB, SIZE>;
  const SuperInput input(in);
  const CodebookTable& table = codebook_table(codebook);
  float sizes[kSuper], wanted[Fit::kSubs];
  for (int o = 0; o < kSuper / 8; ++o) {
    out->signs[o] = split_signs(input.x + 8 * o, input.w + 8 * o, even, sizes + 8 * o);
  }
  SubBlock<Fit::kUnits, 1> subs[Fit::kSubs];
  EntrySums sums;
  for (int j = 0; j < Fit::kSubs; ++j) {
    float most = kNothing;
    for (int i = SUB * j; i < SUB * (j + 1); ++i) most = sizes[i] > most ? sizes[i] : most;
    const Range range = {0.35f * most / peak, 1.4f * most / peak, 1.02f * most / low};
    for (int u = 0; u < Fit::kUnits; ++u) {
      const int at = SUB * j + SIZE * u;
      sums.load<SIZE>(table, sizes + at, input.w + at);
      sums.find_envelope(0, 1, range, &subs[j].units[0][u]);
    }
    wanted[j] = most > kNothing ? subs[j].fit(range) : 0;
  }
  choose_entries<15>(subs, wanted, unit, out);
  const auto value = [&table](const Match& m, int i) { return table.value(m.entry, i); };
  out->restore(length_of(*out, sizes, input.w, unit, value).stretch_together());
}

inline void put_word(uint32_t word, uint8_t* out) {
  std::memcpy(out, &word, sizeof word);
}
// A word has seven signs of each of four octets and a scale above them. Sets the scale.
inline void put_scale(int scale, uint8_t* out) {
  put_word(static_cast<uint32_t>(scale) << 28, out);
}
// Sets the signs, and keeps the scale.
inline void put_signs(const uint8_t* signs, uint8_t* out) {
  uint32_t word;
  std::memcpy(&word, out, sizeof word);
  word &= 0xf0000000u;
  for (int l = 0; l < 4; ++l) word |= static_cast<uint32_t>(signs[l] & 127) << 7 * l;
  put_word(word, out);
}
// Nibbles, the lower half of a byte first.
inline void pack_scales(const BlockScales& scales, int n, uint8_t* out) {
  for (int j = 0; j < n; j += 2) out[j / 2] = byte(scales.scale[j] | scales.scale[j + 1] << 4);
}

// pack_entries replaces the entries and the signs of a block whose scales stay. Of IQ1_S and IQ1_M,
// a sign of 1 says that 1/8 is added to the octet's entry; the four of a sub-block of IQ1_S agree.

inline void pack_entries(const uint16_t* entries, const uint8_t* signs, kernels::BlockIQ2_XXS* b) {
  for (int j = 0; j < 8; ++j) {
    for (int l = 0; l < 4; ++l) b->qs[8 * j + l] = byte(entries[4 * j + l]);
    put_signs(signs + 4 * j, b->qs + 8 * j + 4);
  }
}

inline void pack_entries(const uint16_t* entries, const uint8_t* signs, kernels::BlockIQ2_XS* b) {
  for (int o = 0; o < 32; ++o) {
    const int both = entries[o] | (signs[o] & 127) << 9;
    b->qs[2 * o] = byte(both & 255);
    b->qs[2 * o + 1] = byte(both >> 8);
  }
}

inline void pack_entries(const uint16_t* entries, const uint8_t* signs, kernels::BlockIQ2_S* b) {
  std::memset(b->qh, 0, sizeof b->qh);
  for (int o = 0; o < 32; ++o) {
    b->qs[o] = byte(entries[o] & 255);
    b->signs[o] = signs[o];
    b->qh[o / 4] = byte(b->qh[o / 4] | entries[o] >> 8 << 2 * (o % 4));
  }
}

inline void pack_entries(const uint16_t* entries, const uint8_t* signs, kernels::BlockIQ3_XXS* b) {
  for (int q = 0; q < 64; ++q) b->qs[q] = byte(entries[q]);
  for (int j = 0; j < 8; ++j) put_signs(signs + 4 * j, b->signs + 4 * j);
}

inline void pack_entries(const uint16_t* entries, const uint8_t* signs, kernels::BlockIQ3_S* b) {
  std::memset(b->qh, 0, sizeof b->qh);
  for (int q = 0; q < 64; ++q) {
    b->qs[q] = byte(entries[q] & 255);
    b->qh[q / 8] = byte(b->qh[q / 8] | entries[q] >> 8 << q % 8);
  }
  std::memcpy(b->signs, signs, sizeof b->signs);
}

inline void pack_entries(const uint16_t* entries, const uint8_t* signs, kernels::BlockIQ1_S* b) {
  for (int j = 0; j < 8; ++j) {
    int word = (b->qh[2 * j + 1] << 8 & 0x7000) | (signs[4 * j] != 0 ? 0 : 0x8000);
    for (int l = 0; l < 4; ++l) {
      b->qs[4 * j + l] = byte(entries[4 * j + l] & 255);
      word |= entries[4 * j + l] >> 8 << 3 * l;
    }
    b->qh[2 * j] = byte(word & 255);
    b->qh[2 * j + 1] = byte(word >> 8);
  }
}

inline void pack_entries(const uint16_t* entries, const uint8_t* signs, kernels::BlockIQ1_M* b) {
  std::memset(b->qh, 0, sizeof b->qh);
  for (int o = 0; o < 32; ++o) {
    const int high = entries[o] >> 8 | (signs[o] != 0 ? 0 : 8);
    b->qs[o] = byte(entries[o] & 255);
    b->qh[o / 2] = byte(b->qh[o / 2] | high << 4 * (o % 2));
  }
}

template <int SUB, int SIZE, class Block>
void pack_fit(const CodebookFit<SUB, SIZE>& fit, Block* b) {
  uint16_t entries[kSuper / SIZE];
  for (int i = 0; i < kSuper / SIZE; ++i) entries[i] = static_cast<uint16_t>(fit.entry(i));
  pack_entries(entries, fit.signs, b);
}

inline void write(const Input& in, kernels::BlockIQ2_XXS* b) {
  CodebookFit<32, 8> fit;
  fit_sizes(in, Codebook::kIq2Xxs, 8, 43, 0.125f, true, &fit);
  b->d = fit.d();
  for (int j = 0; j < 8; ++j) put_scale(fit.scales.scale[j], b->qs + 8 * j + 4);
  pack_fit(fit, b);
}

inline void write(const Input& in, kernels::BlockIQ2_XS* b) {
  CodebookFit<16, 8> fit;
  fit_sizes(in, Codebook::kIq2Xs, 8, 43, 0.125f, true, &fit);
  b->d = fit.d();
  pack_fit(fit, b);
  pack_scales(fit.scales, 16, b->scales);
}

inline void write(const Input& in, kernels::BlockIQ2_S* b) {
  CodebookFit<16, 8> fit;
  fit_sizes(in, Codebook::kIq2S, 8, 43, 0.125f, false, &fit);
  b->d = fit.d();
  pack_fit(fit, b);
  pack_scales(fit.scales, 16, b->scales);
}

inline void write(const Input& in, kernels::BlockIQ3_XXS* b) {
  CodebookFit<32, 4> fit;
  fit_sizes(in, Codebook::kIq3Xxs, 4, 62, 0.25f, true, &fit);
  b->d = fit.d();
  for (int j = 0; j < 8; ++j) put_scale(fit.scales.scale[j], b->signs + 4 * j);
  pack_fit(fit, b);
}

inline void write(const Input& in, kernels::BlockIQ3_S* b) {
  CodebookFit<32, 4> fit;
  fit_sizes(in, Codebook::kIq3S, 1, 15, 1, false, &fit);
  b->d = fit.d();
  pack_fit(fit, b);
  pack_scales(fit.scales, 8, b->scales);
}

// For IQ1_S and IQ1_M: entries of -1, 0 and 1 with 1/8 added or subtracted, for each sub-block
// (SHIFTS 2) or each entry. x = d * (2 s + 1) * (entry +- 1/8), s below 8.
template <int SUB, int SHIFTS>
void fit_ternary_entries(const Input& in, CodebookFit<SUB, 8>* out) {
  using Fit = CodebookFit<SUB, 8>;
  const SuperInput input(in);
  const CodebookTable& table = codebook_table(Codebook::kIq1);
  SubBlock<Fit::kUnits, SHIFTS> subs[Fit::kSubs];
  float wanted[Fit::kSubs];
  EntrySums sums;
  for (int j = 0; j < Fit::kSubs; ++j) {
    float most = kNothing;
    for (int i = SUB * j; i < SUB * (j + 1); ++i) {
      most = size_of(input.x[i]) > most ? size_of(input.x[i]) : most;
    }
    const Range range = {0.25f * most, 1.1f * most, 1.1f * most};
    for (int u = 0; u < Fit::kUnits; ++u) {
      const int at = SUB * j + 8 * u;
      sums.load_shifted<8>(table, input.x + at, input.w + at);
      for (int shift = 0; shift < SHIFTS; ++shift) {
        sums.find_envelope(shift, SHIFTS == 1 ? 2 : 1, range, &subs[j].units[shift][u]);
      }
    }
    wanted[j] = most > kNothing ? subs[j].fit(range) : 0;
  }
  choose_entries<7>(subs, wanted, 1, out);
  const auto value = [&table](const Match& m, int i) {
    return table.value(m.entry, i) + (m.up ? kShift : -kShift);
  };
  out->restore(length_of(*out, input.x, input.w, 1, value).stretch_of_power());
  for (int o = 0; o < kSuper / 8; ++o) out->signs[o] = out->entries[o].up ? 1 : 0;
}

inline void write(const Input& in, kernels::BlockIQ1_S* b) {
  CodebookFit<32, 8> fit;
  fit_ternary_entries<32, 2>(in, &fit);
  b->d = fit.d();
  for (int j = 0; j < 8; ++j) b->qh[2 * j + 1] = byte(fit.scales.scale[j] << 4);
  pack_fit(fit, b);
}

inline void write(const Input& in, kernels::BlockIQ1_M* b) {
  CodebookFit<16, 8> fit;
  fit_ternary_entries<16, 1>(in, &fit);
  pack_fit(fit, b);
  for (int w = 0; w < 4; ++w) {
    int word = (fit.d() >> 4 * w & 15) << 12;
    for (int j = 0; j < 4; ++j) word |= fit.scales.scale[4 * w + j] << 3 * j;
    b->scales[2 * w] = byte(word & 255);
    b->scales[2 * w + 1] = byte(word >> 8);
  }
}

// --- one and two bits, NVFP4

inline void write(const Input& in, kernels::BlockQ1_0* b) {
  Small<128> fit(in, Moments::kWhole);
  using F = Small<128>::F;
  fit.rows.weigh_by_importance(false);
  F sum{}, weight{};
  for (int i = 0; i < 128; ++i) {
    sum += fit.rows.w[i] * magnitude(fit.rows.x[i]);
    weight += fit.rows.w[i];
  }
  fit.d = ratio(sum, weight);
  for (int l = 0; l < in.count; ++l) {
    b[l].d = fit.scale(l);
    uint8_t q[128];
    for (int i = 0; i < 128; ++i) q[i] = fit.rows.x[i][l] > 0 ? 1 : 0;
    pack_in_order<1>(q, b[l].qs);
  }
}

inline void write(const Input& in, kernels::BlockQ2_0* b) {
  Small<64> fit(in, Moments::kWhole);
  fit.fit_scale_alone<Whole<-1, 2, 30, 14>>(1);
  fit.restore_length();
  for (int l = 0; l < in.count; ++l) {
    b[l].d = fit.scale(l);
    pack_in_order<2>(fit.of(l), b[l].qs);
  }
}

// E4M3 without a sign: 126 is the largest number.
inline float e4m3_value(int code) {
  const int exponent = code >> 3, fraction = code & 7;
  return exponent == 0 ? static_cast<float>(fraction) * 0x1p-9f
                       : static_cast<float>(8 + fraction) *
                             float_of(static_cast<uint32_t>(exponent + 117) << 23);
}
inline int e4m3_below(float x) {
  int code = 0;
  for (int bit = 64; bit > 0; bit /= 2) {
    if (code + bit <= 126 && e4m3_value(code + bit) <= x) code += bit;
  }
  return code;
}
// Sub-blocks of 16 values, as many as SIMD lanes at once: four blocks.
inline void write(const Input& in, kernels::BlockNVFP4* b) {
  using Rows = ErrorWeights<16, 16>;
  using F = Rows::F;
  for (int first = 0; first < in.count; first += 4) {
    const int blocks = in.count - first < 4 ? in.count - first : 4;
    Rows rows;
    rows.load(in.x + 64 * first, in.w + 64 * first, 4 * blocks, Moments::kWhole);
    rows.weigh(false);
    const F peak = magnitude(peak_of(rows));
    int base[16], code[16] = {};
    for (int l = 0; l < 16; ++l) base[l] = e4m3_below(peak[l] / 6);
    F least{}, scale{}, index;
    for (int i = 0; i < 16; ++i) least += rows.w[i] * rows.x[i] * rows.x[i];
    for (int step = -6; step <= 2; ++step) {
      F unit{};
      for (int l = 0; l < 16; ++l) {
        const int at = base[l] + step;
        unit[l] = at > 0 && at <= 126 ? e4m3_value(at) / 2 : 0;
      }
      const F inverse = inverse_of(unit);
      F error{};
      for (int i = 0; i < 16; ++i) {
        const F size = magnitude(rows.x[i]);
        const F rest = size - unit * mxfp4_value(F(size * inverse), &index);
        error += rows.w[i] * rest * rest;
      }
      for (int l = 0; l < 16; ++l) {
        if (unit[l] == 0 || !(error[l] < least[l])) continue;
        least[l] = error[l];
        scale[l] = unit[l];
        code[l] = base[l] + step;
      }
    }
    const F inverse = inverse_of(scale);
    for (int i = 0; i < 16; ++i) {
      mxfp4_value(F(magnitude(rows.x[i]) * inverse), &index);
      for (int l = 0; l < 4 * blocks; ++l) {
        const int sign = rows.x[i][l] < 0 && index[l] > 0 ? 8 : 0;
        uint8_t& both = b[first + l / 4].qs[l % 4 * 8 + i % 8];
        both = byte(both | (static_cast<int>(index[l]) | sign) << (i < 8 ? 0 : 4));
      }
    }
    for (int l = 0; l < 4 * blocks; ++l) b[first + l / 4].scales[l % 4] = byte(code[l]);
  }
}

template <class Block, int N>
void quantize_blocks(const float* x, const float* w, int64_t n, uint8_t* out) {
  constexpr int kAtOnce = N < kSuper ? kTogether : 1;
  for (int64_t left = n / N; left > 0; left -= kAtOnce) {
    const int count = static_cast<int>(left < kAtOnce ? left : kAtOnce);
    Block b[kAtOnce] = {};
    write({x, w, count}, b);
    std::memcpy(out, b, static_cast<size_t>(count) * sizeof(Block));
    x += kAtOnce * N;
    w += kAtOnce * N;
    out += kAtOnce * sizeof(Block);
  }
}

}  // namespace
}  // namespace sluice::convert
