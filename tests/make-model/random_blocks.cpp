// Writes each type's blocks field by field in file layout (gguf.md, kernels/blocks.h). Block sizes
// are repeated here because tests compare both. Types with offsets or minimums are centred on
// average, not exactly, so that those fields matter.
#include "tests/make-model/random_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace sluice::make_model {
namespace {

constexpr uint32_t kQuantilesLog2 = 12;
using Normals = std::array<float, 1u << kQuantilesLog2>;

// A pool of normal deviates (sums of 12 uniforms), scaled to exactly mean 0 and variance 1.
const Normals& unit_normals() {
  static const Normals pool = [] {
    Normals values;
    Random random(0x5eed, 0);
    double sum = 0, squares = 0;
    for (float& value : values) {
      double total = -6;
      for (int i = 0; i < 12; ++i) total += random.uniform();
      value = static_cast<float>(total);
      sum += total;
      squares += total * total;
    }
    const double mean = sum / static_cast<double>(values.size());
    const double deviation = std::sqrt(squares / static_cast<double>(values.size()) - mean * mean);
    for (float& value : values) value = static_cast<float>((value - mean) / deviation);
    return values;
  }();
  return pool;
}

// Rounds to nearest even, with subnormals. Values here are far below the f16 maximum.
uint16_t to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const float magnitude = std::fabs(value);
  if (magnitude < 0x1p-14f) {  // subnormal: steps of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::lrintf(magnitude * 0x1p24f)));
  }
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void put_f16(uint8_t* out, float value) {
  const uint16_t half = to_f16(value);
  std::memcpy(out, &half, sizeof half);
}

void put_random(uint8_t* out, size_t bytes, Random& random) {
  for (; bytes >= 8; bytes -= 8, out += 8) {
    const uint64_t draw = random.next();
    std::memcpy(out, &draw, 8);
  }
  const uint64_t draw = random.next();
  std::memcpy(out, &draw, bytes);
}

// `scale` within 25 % either way. signed_jitter() negates half of them, which centres asymmetric
// types.
float jitter(float scale, Random& random) {
  return scale * (0.75f + 0.5f * static_cast<float>(random.uniform()));
}
float signed_jitter(float scale, Random& random) {
  const float value = jitter(scale, random);
  return (random.next() >> 63) != 0 ? -value : value;
}

template <typename T, T (*Convert)(float)>
void fill_float(uint8_t* out, uint64_t n, float sigma, float mean, Random& random) {
  std::array<T, std::tuple_size_v<Normals>> pool;
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = Convert(mean + sigma * unit_normals()[i]);
  T* values = reinterpret_cast<T*>(out);
  uint64_t draw = 0;
  for (uint64_t i = 0; i < n; ++i) {
    draw = i % 5 == 0 ? random.next() : draw >> kQuantilesLog2;
    values[i] = pool[draw % pool.size()];
  }
}
float same(float value) {
  return value;
}

// d, [m], then Bytes of uniform quants with standard deviation `spread` and mean `offset` if
// unsigned. Without m the type itself subtracts half its range.
template <size_t Bytes, bool HasMin>
void fill_simple(uint8_t* out, uint64_t n, float spread, float offset, float sigma,
                 Random& random) {
  for (uint64_t i = 0; i < n; ++i) {
    const float d = HasMin ? jitter(sigma / spread, random) : signed_jitter(sigma / spread, random);
    put_f16(out, d);
    out += 2;
    if (HasMin) {
      put_f16(out, -jitter(d * offset, random));
      out += 2;
    }
    put_random(out, Bytes, random);
    out += Bytes;
  }
}
#define SLUICE_SIMPLE_TYPE(name, Bytes, HasMin, spread, offset)                    \
  void fill_##name(uint8_t* out, uint64_t n, float sigma, float, Random& random) { \
    fill_simple<Bytes, HasMin>(out, n, spread, offset, sigma, random);             \
  }
SLUICE_SIMPLE_TYPE(q4_0, 16, false, 4.61f, 0)
SLUICE_SIMPLE_TYPE(q4_1, 16, true, 4.61f, 7.5f)
SLUICE_SIMPLE_TYPE(q5_0, 20, false, 9.23f, 0)
SLUICE_SIMPLE_TYPE(q5_1, 20, true, 9.23f, 15.5f)
SLUICE_SIMPLE_TYPE(iq4_nl, 16, false, 67.4f, 0)

void fill_q8_0(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  for (uint64_t i = 0; i < n; ++i, out += 34) {
    put_f16(out, signed_jitter(sigma / 73.3f, random));
    put_random(out + 2, 32, random);
    for (int j = 2; j < 34; ++j) out[j] = out[j] == 0x80 ? 0x81 : out[j];  // -128 is never written
  }
}

// 4-bit scale (low) and minimum (high) for each 16 weights, 2-bit quants, d, dmin.
void fill_q2_k(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  for (uint64_t i = 0; i < n; ++i, out += 84) {
    for (int j = 0; j < 16; ++j) {
      const uint32_t scale = 6 + random.below(8), min = scale + random.below(5) - 2;
      out[j] = static_cast<uint8_t>(min << 4 | scale);
    }
    put_random(out + 16, 64, random);
    const float d = jitter(sigma / (1.12f * 9.8f), random);
    put_f16(out + 80, d);
    put_f16(out + 82, 1.5f * d);
  }
}

// High bits, low bits, 6-bit scales less 32 for each 16 weights, d: all bits are free.
void fill_q3_k(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  for (uint64_t i = 0; i < n; ++i, out += 110) {
    put_random(out, 108, random);
    put_f16(out + 108, signed_jitter(sigma / (2.35f * 18.5f), random));
  }
}

// Eight 6-bit scales and minimums in 12 bytes: the first four in the low bits of bytes 0..3 and
// 4..7, the others split into a nibble of bytes 8..11 and the top two bits of 0..3 and 4..7.
void put_k_scales(uint8_t* out, Random& random) {
  uint32_t scales[8], mins[8];
  for (int j = 0; j < 8; ++j) {
    scales[j] = 24 + random.below(32);
    mins[j] = scales[j] + random.below(9) - 4;
  }
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<uint8_t>(scales[j] | scales[j + 4] >> 4 << 6);
    out[j + 4] = static_cast<uint8_t>(mins[j] | mins[j + 4] >> 4 << 6);
    out[j + 8] = static_cast<uint8_t>((scales[j + 4] & 15) | (mins[j + 4] & 15) << 4);
  }
}
template <size_t QuantBytes>
void fill_k_min(uint8_t* out, uint64_t n, float spread, float offset, float sigma, Random& random) {
  for (uint64_t i = 0; i < n; ++i, out += 16 + QuantBytes) {
    const float d = jitter(sigma / (spread * 40.6f), random);
    put_f16(out, d);
    put_f16(out + 2, offset * d);
    put_k_scales(out + 4, random);
    put_random(out + 16, QuantBytes, random);
  }
}
void fill_q4_k(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  fill_k_min<128>(out, n, 4.61f, 7.5f, sigma, random);
}
void fill_q5_k(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  fill_k_min<160>(out, n, 9.23f, 15.5f, sigma, random);
}

// Low nibbles, high bits, int8 scales for each 16 weights, d.
void fill_q6_k(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  for (uint64_t i = 0; i < n; ++i, out += 210) {
    put_random(out, 208, random);
    put_f16(out + 208, signed_jitter(sigma / (18.5f * 73.9f), random));
  }
}

// d, high bits of the scales, low nibbles of the scales, quants: all bits are free.
void fill_iq4_xs(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  for (uint64_t i = 0; i < n; ++i, out += 136) {
    put_f16(out, signed_jitter(sigma / (67.4f * 18.5f), random));
    put_random(out + 2, 134, random);
  }
}

// E8M0 exponent, then FP4 (E2M1) quants. Table entries are twice the values: deviation 5.85, or 7.7
// with the spread of the exponents.
void fill_mxfp4(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  const int exponent = 128 + static_cast<int>(std::lround(std::log2(sigma / 7.7f)));
  for (uint64_t i = 0; i < n; ++i, out += 17) {
    out[0] = static_cast<uint8_t>(exponent + static_cast<int>(random.below(3)) - 1);
    put_random(out + 1, 16, random);
  }
}

// Trits in base 3, a byte holding ceil(value * 256 / 243): five each, then four each (times 3).
uint8_t pack_trits(uint32_t value) {
  return static_cast<uint8_t>((value * 256 + 242) / 243);
}
void fill_tq1_0(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  for (uint64_t i = 0; i < n; ++i, out += 54) {
    for (int j = 0; j < 48; ++j) out[j] = pack_trits(random.below(243));
    for (int j = 48; j < 52; ++j) out[j] = pack_trits(random.below(81) * 3);
    put_f16(out + 52, jitter(sigma / 0.816f, random));
  }
}
void fill_tq2_0(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  for (uint64_t i = 0; i < n; ++i, out += 66) {
    put_random(out, 64, random);
    for (int j = 0; j < 64; ++j) {  // two bits each, 3 is not a trit: 11 becomes 01
      out[j] = static_cast<uint8_t>(out[j] & ~((out[j] & out[j] << 1) & 0xaa));
    }
    put_f16(out + 64, jitter(sigma / 0.7f, random));
  }
}

// d, m, then quants of two, three and four bits; and d, signs, zeros.
SLUICE_SIMPLE_TYPE(qsf2, 16, true, 1.12f, 1.5f)
SLUICE_SIMPLE_TYPE(qsf3, 24, true, 2.29f, 3.5f)
SLUICE_SIMPLE_TYPE(qsf4, 32, true, 4.61f, 7.5f)
SLUICE_SIMPLE_TYPE(qsft, 16, false, 0.707f, 0)

// d, then indices, signs and scales of sub-blocks: all bits are free. The deviation of a codebook's
// entries times that of the scales.
SLUICE_SIMPLE_TYPE(iq2_xxs, 64, false, 23.12f * 2.308f, 0)
SLUICE_SIMPLE_TYPE(iq2_xs, 72, false, 24.22f * 2.308f, 0)
SLUICE_SIMPLE_TYPE(iq2_s, 80, false, 24.43f * 2.308f, 0)
SLUICE_SIMPLE_TYPE(iq3_xxs, 96, false, 30.85f * 4.617f, 0)
SLUICE_SIMPLE_TYPE(iq3_s, 108, false, 7.594f * 18.47f, 0)
SLUICE_SIMPLE_TYPE(iq1_s, 48, false, 0.781f * 9.22f, 0)
// The same, with d in the upper four bits of the last four words.
void fill_iq1_m(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  for (uint64_t i = 0; i < n; ++i, out += 56) {
    put_random(out, 56, random);
    const int d = to_f16(signed_jitter(sigma / (0.781f * 9.22f), random));
    for (int w = 0; w < 4; ++w) {
      uint8_t& high = out[49 + 2 * w];
      high = static_cast<uint8_t>((high & 15) | (d >> 4 * w & 15) << 4);
    }
  }
}
SLUICE_SIMPLE_TYPE(q1_0, 16, false, 1, 0)
SLUICE_SIMPLE_TYPE(q2_0, 16, false, 1.225f, 0)
#undef SLUICE_SIMPLE_TYPE

// Rounds to E4M3, which has no sign here: three bits of fraction, or steps of 2^-9.
uint8_t to_e4m3(float value) {
  const int exponent = std::max(std::ilogb(value), -6);
  const auto steps = std::lrintf(std::ldexp(value, 3 - exponent));
  return static_cast<uint8_t>(((exponent + 6) << 3) + steps);
}
// Four scales of E4M3, of which the format takes half, then FP4 quants.
void fill_nvfp4(uint8_t* out, uint64_t n, float sigma, float, Random& random) {
  for (uint64_t i = 0; i < n; ++i, out += 36) {
    for (int j = 0; j < 4; ++j) out[j] = to_e4m3(2 * jitter(sigma / 5.85f, random));
    put_random(out + 4, 32, random);
  }
}

constexpr auto fill_f32 = fill_float<float, same>;
constexpr auto fill_f16 = fill_float<uint16_t, to_f16>;
constexpr auto fill_bf16 = fill_float<uint16_t, to_bf16>;

using gguf::TensorType;
constexpr BlockType kTypes[] = {
#define SLUICE_ELEMENT_TYPE(NAME, name, id, bytes) \
  {#name, TensorType::k##NAME, 1, bytes, fill_##name},
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) \
  {#name, TensorType::k##NAME, values, bytes, fill_##name},
#include "kernels/types.def"
};

}  // namespace

Random::Random(uint64_t seed, uint64_t index) {
  // splitmix64 of both, so that neighbouring indices start far apart and the state is not 0.
  uint64_t z = seed * 0x9e3779b97f4a7c15u + index + 1;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  state_ = (z ^ z >> 31) | 1;
}

uint64_t Random::next() {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return state_ * 0x2545f4914f6cdd1du;
}

std::span<const BlockType> block_types() {
  return kTypes;
}

const BlockType* find_block_type(std::string_view name) {
  for (const BlockType& entry : kTypes) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

const BlockType& block_type(TensorType type) {
  for (const BlockType& entry : kTypes) {
    if (entry.type == type) return entry;
  }
  return kTypes[0];
}

}  // namespace sluice::make_model
