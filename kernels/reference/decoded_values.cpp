// Dequantization of the codebook types, of one and two bits, and of NVFP4, as blocks.h defines the
// bits. Apart from the others: only programs with kernels for these types link it.
// All products are exact in f32: a scale has 11 bits, and what it is multiplied with at most 11.
#include <cmath>

#include "kernels/codebooks.h"
#include "kernels/reference/dequantize_blocks.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels::reference {
namespace {

constexpr int kSub = 32;  // values of a sub-block

uint32_t word(const uint8_t* bytes) {
  uint32_t x;
  std::memcpy(&x, bytes, sizeof x);
  return x;
}
int half(const uint8_t* bytes) {
  return bytes[0] | bytes[1] << 8;
}
int nibble(const uint8_t* bytes, int i) {
  return bytes[i / 2] >> (4 * (i % 2)) & 15;
}
// Sign bits of an octet of a word with four times seven, lowest first.
uint8_t seven_signs(uint32_t word, int octet) {
  return static_cast<uint8_t>(with_even_parity(word >> (7 * octet) & 127));
}

// x[i] = scale * entry i, negated where sign bit `first` + i is set.
template <class Entry>
void signed_entry(float scale, Entry entry, uint8_t signs, int first, float* x) {
  for (int i = 0; i < static_cast<int>(sizeof entry); ++i) {
    const float value = scale * static_cast<float>(entry >> 8 * i & 255);
    x[i] = (signs >> (first + i) & 1) != 0 ? -value : value;
  }
}
// Eight values that are -1/8 or 1/8 beside -1, 0 and 1.
void shifted_entry(float scale, int index, bool down, float* x) {
  const uint64_t entry = codebooks().iq1[index];
  for (int i = 0; i < 8; ++i) {
    const int eighths = static_cast<int8_t>(entry >> 8 * i) + (down ? -1 : 1);
    x[i] = scale * (static_cast<float>(eighths) / 8);
  }
}

void values(const BlockIQ2_XXS& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int sub = 0; sub < 8; ++sub) {
    const uint8_t* index = b.qs + 8 * sub;
    const uint32_t signs = word(index + 4);
    const float scale = d * (static_cast<float>(signs >> 28) + 0.5f) / 4;
    for (int l = 0; l < 4; ++l) {
      signed_entry(scale, codebooks().iq2_xxs[index[l]], seven_signs(signs, l), 0,
                   x + kSub * sub + 8 * l);
    }
  }
}

void values(const BlockIQ2_XS& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int octet = 0; octet < 32; ++octet) {
    const int both = half(b.qs + 2 * octet);
    const float scale = d * (static_cast<float>(nibble(b.scales, octet / 2)) + 0.5f) / 4;
    signed_entry(scale, codebooks().iq2_xs[both & 511],
                 seven_signs(static_cast<uint32_t>(both) >> 9, 0), 0, x + 8 * octet);
  }
}

void values(const BlockIQ2_S& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int octet = 0; octet < 32; ++octet) {
    const int index = b.qs[octet] | (b.qh[octet / 4] >> (2 * (octet % 4)) & 3) << 8;
    const float scale = d * (static_cast<float>(nibble(b.scales, octet / 2)) + 0.5f) / 4;
    signed_entry(scale, codebooks().iq2_s[index], b.signs[octet], 0, x + 8 * octet);
  }
}

void values(const BlockIQ3_XXS& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int quad = 0; quad < 64; ++quad) {
    const uint32_t signs = word(b.signs + 4 * (quad / 8));
    const float scale = d * (static_cast<float>(signs >> 28) + 0.5f) / 2;
    signed_entry(scale, codebooks().iq3_xxs[b.qs[quad]], seven_signs(signs, quad % 8 / 2),
                 4 * (quad % 2), x + 4 * quad);
  }
}

void values(const BlockIQ3_S& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int quad = 0; quad < 64; ++quad) {
    const int index = b.qs[quad] | (b.qh[quad / 8] >> (quad % 8) & 1) << 8;
    const float scale = d * static_cast<float>(1 + 2 * nibble(b.scales, quad / 8));
    signed_entry(scale, codebooks().iq3_s[index], b.signs[quad / 2], 4 * (quad % 2), x + 4 * quad);
  }
}

void values(const BlockIQ1_S& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int octet = 0; octet < 32; ++octet) {
    const int high = half(b.qh + octet / 4 * 2);
    const int index = b.qs[octet] | (high >> (3 * (octet % 4)) & 7) << 8;
    const float scale = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
    shifted_entry(scale, index, (high & 0x8000) != 0, x + 8 * octet);
  }
}

void values(const BlockIQ1_M& b, float* x) {
  int bits = 0;
  for (int w = 0; w < 4; ++w) bits |= (half(b.scales + 2 * w) >> 12) << 4 * w;
  const float d = f16_to_f32(static_cast<f16>(bits));
  for (int octet = 0; octet < 32; ++octet) {
    const int high = nibble(b.qh, octet), index = b.qs[octet] | (high & 7) << 8;
    const int s = half(b.scales + octet / 8 * 2) >> (3 * (octet % 8 / 2)) & 7;
    shifted_entry(d * static_cast<float>(2 * s + 1), index, (high & 8) != 0, x + 8 * octet);
  }
}

void values(const BlockNVFP4& b, float* x) {
  for (int i = 0; i < 64; ++i) {
    const int e = b.scales[i / 16], exponent = e >> 3 & 15, fraction = e & 7;
    const float scale = e == 0x7f ? 0.0f
                        : exponent == 0
                            ? std::ldexp(static_cast<float>(fraction), -10)
                            : std::ldexp(static_cast<float>(8 + fraction), exponent - 11);
    const uint8_t both = b.qs[i / 16 * 8 + i % 8];
    x[i] = scale * static_cast<float>(kMxfp4Values[i % 16 < 8 ? both & 15 : both >> 4]);
  }
}

void values(const BlockQ1_0& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 128; ++i) x[i] = (b.qs[i / 8] >> (i % 8) & 1) != 0 ? d : -d;
}

void values(const BlockQ2_0& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 64; ++i) {
    x[i] = d * static_cast<float>((b.qs[i / 4] >> (2 * (i % 4)) & 3) - 1);
  }
}

}  // namespace

void dequantize(Type type, const void* src, int64_t n, float* out) {
  switch (type) {
#define SLUICE_DECODED_TYPE(NAME, name, id, values_of_block, bytes)     \
  case Type::k##NAME:                                                   \
    return dequantize_blocks<Block##NAME>(src, n, values_of_block, out, \
                                          [](const Block##NAME& b, float* x) { values(b, x); });
#include "kernels/types.def"
    default:
      return dequantize_common(type, src, n, out);
  }
}

}  // namespace sluice::kernels::reference
