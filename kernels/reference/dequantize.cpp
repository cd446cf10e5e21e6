// Dequantization of all but the decoded types, block by block, as blocks.h defines the bits.
// Source: the GGUF block formats.
#include <cmath>
#include <cstring>

#include "kernels/blocks.h"
#include "kernels/reference/dequantize_blocks.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels::reference {
namespace {

void values(const BlockQ4_0& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 16; ++i) {
    x[i] = d * static_cast<float>((b.qs[i] & 15) - 8);
    x[i + 16] = d * static_cast<float>((b.qs[i] >> 4) - 8);
  }
}
void values(const BlockQ4_1& b, float* x) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int i = 0; i < 16; ++i) {
    x[i] = d * static_cast<float>(b.qs[i] & 15) + m;
    x[i + 16] = d * static_cast<float>(b.qs[i] >> 4) + m;
  }
}
int five_bits(const uint8_t* qs, const uint8_t* qh, int i) {
  const int nibble = i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
  return nibble | ((qh[i / 8] >> (i % 8)) & 1) << 4;
}
void values(const BlockQ5_0& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(five_bits(b.qs, b.qh, i) - 16);
}
void values(const BlockQ5_1& b, float* x) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(five_bits(b.qs, b.qh, i)) + m;
}
void values(const BlockQ8_0& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(b.qs[i]);
}
void values(const BlockIQ4_NL& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 16; ++i) {
    x[i] = d * static_cast<float>(kIq4Values[b.qs[i] & 15]);
    x[i + 16] = d * static_cast<float>(kIq4Values[b.qs[i] >> 4]);
  }
}
void values(const BlockMXFP4& b, float* x) {
  for (int i = 0; i < 16; ++i) {
    x[i] = std::ldexp(static_cast<float>(kMxfp4Values[b.qs[i] & 15]), b.e - 128);
    x[i + 16] = std::ldexp(static_cast<float>(kMxfp4Values[b.qs[i] >> 4]), b.e - 128);
  }
}

int two_bits(const uint8_t* qs, int i) {
  return (qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
}
void values(const BlockQ2_K& b, float* x) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int s = b.scales[i / 16];
    x[i] = d * static_cast<float>(s & 15) * static_cast<float>(two_bits(b.qs, i)) -
           dmin * static_cast<float>(s >> 4);
  }
}
void values(const BlockQ3_K& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int j = i / 16;
    const int low = j < 8 ? b.scales[j] & 15 : b.scales[j - 8] >> 4;
    const int s = low | ((b.scales[8 + j % 4] >> (2 * (j / 4))) & 3) << 4;
    const int q = two_bits(b.qs, i) | ((b.hmask[i % 32] >> (i / 32)) & 1) << 2;
    x[i] = d * static_cast<float>(s - 32) * static_cast<float>(q - 4);
  }
}
void scale_and_min(const uint8_t* scales, int j, int& s, int& m) {
  if (j < 4) {
    s = scales[j] & 63;
    m = scales[j + 4] & 63;
  } else {
    s = (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4;
    m = (scales[j + 4] >> 4) | (scales[j] >> 6) << 4;
  }
}
int k_nibble(const uint8_t* qs, int i) {
  const int byte = qs[32 * (i / 64) + i % 32];
  return i % 64 < 32 ? byte & 15 : byte >> 4;
}
void values(const BlockQ4_K& b, float* x) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int i = 0; i < kSuperBlock; ++i) {
    int s, m;
    scale_and_min(b.scales, i / 32, s, m);
    x[i] = d * static_cast<float>(s) * static_cast<float>(k_nibble(b.qs, i)) -
           dmin * static_cast<float>(m);
  }
}
void values(const BlockQ5_K& b, float* x) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int i = 0; i < kSuperBlock; ++i) {
    int s, m;
    scale_and_min(b.scales, i / 32, s, m);
    const int q = k_nibble(b.qs, i) | ((b.qh[i % 32] >> (i / 32)) & 1) << 4;
    x[i] = d * static_cast<float>(s) * static_cast<float>(q) - dmin * static_cast<float>(m);
  }
}
void values(const BlockQ6_K& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int h = i / 128, p = i % 128 / 32, l = i % 32;
    const int byte = b.ql[64 * h + 32 * (p % 2) + l];
    const int q = (p < 2 ? byte & 15 : byte >> 4) | ((b.qh[32 * h + l] >> (2 * p)) & 3) << 4;
    x[i] = d * static_cast<float>(b.scales[i / 16]) * static_cast<float>(q - 32);
  }
}
void values(const BlockIQ4_XS& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int j = i / 32;
    const int low = (b.scales_l[j / 2] >> (4 * (j % 2))) & 15;
    const int s = low | ((b.scales_h >> (2 * j)) & 3) << 4;
    const int byte = b.qs[16 * j + i % 16];
    x[i] = d * static_cast<float>(s - 32) *
           static_cast<float>(kIq4Values[i % 32 < 16 ? byte & 15 : byte >> 4]);
  }
}
int base3_digit(int byte, int n) {
  for (int i = 0; i < n; ++i) byte = byte * 3 % 256;
  return byte * 3 / 256;
}
void values(const BlockTQ1_0& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int digit = i < 160   ? base3_digit(b.qs[i % 32], i / 32)
                      : i < 240 ? base3_digit(b.qs[32 + i % 16], (i - 160) / 16)
                                : base3_digit(b.qh[i % 4], (i - 240) / 4);
    x[i] = d * static_cast<float>(digit - 1);
  }
}
void values(const BlockTQ2_0& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < kSuperBlock; ++i) x[i] = d * static_cast<float>(two_bits(b.qs, i) - 1);
}

void qsf_line(f16 scale, f16 least, const uint8_t* qs, int bits, float* x) {
  const float d = f16_to_f32(scale), m = f16_to_f32(least);
  for (int i = 0; i < kQsfBlock; ++i) {
    const int at = i * bits, next = (at + bits - 1) / 8;
    // If `next` is the same byte, only its lower copy is used.
    const int word = qs[at / 8] | qs[next] << 8;
    x[i] = d * static_cast<float>((word >> at % 8) & ((1 << bits) - 1)) + m;
  }
}
void values(const BlockQSF2& b, float* x) {
  qsf_line(b.d, b.m, b.qs, 2, x);
}
void values(const BlockQSF3& b, float* x) {
  qsf_line(b.d, b.m, b.qs, 3, x);
}
void values(const BlockQSF4& b, float* x) {
  qsf_line(b.d, b.m, b.qs, 4, x);
}
void values(const BlockQSFT& b, float* x) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < kQsfBlock; ++i) {
    const int zero = (b.zeros[i / 8] >> (i % 8)) & 1, sign = (b.signs[i / 8] >> (i % 8)) & 1;
    x[i] = d * static_cast<float>((1 - zero) * (1 - 2 * sign));
  }
}

void from_f16(const void* src, int64_t n, float* out) {
  const uint8_t* p = static_cast<const uint8_t*>(src);
  for (int64_t i = 0; i < n; ++i) {
    f16 h;
    std::memcpy(&h, p + 2 * i, 2);
    out[i] = f16_to_f32(h);
  }
}
void from_bf16(const void* src, int64_t n, float* out) {
  const uint8_t* p = static_cast<const uint8_t*>(src);
  for (int64_t i = 0; i < n; ++i) {
    uint16_t h;
    std::memcpy(&h, p + 2 * i, 2);
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    std::memcpy(out + i, &bits, 4);
  }
}

}  // namespace

void dequantize_common(Type type, const void* src, int64_t n, float* out) {
  if (n == 0) return;  // pointers may be null
  switch (type) {
    case Type::kF32:
      std::memcpy(out, src, static_cast<size_t>(n) * 4);
      return;
    case Type::kF16:
      return from_f16(src, n, out);
    case Type::kBF16:
      return from_bf16(src, n, out);
#define SLUICE_BLOCK_TYPE(NAME, name, id, values_of_block, bytes)       \
  case Type::k##NAME:                                                   \
    return dequantize_blocks<Block##NAME>(src, n, values_of_block, out, \
                                          [](const Block##NAME& b, float* x) { values(b, x); });
#define SLUICE_DECODED_TYPE(NAME, name, id, values_of_block, bytes) case Type::k##NAME:
#include "kernels/types.def"
      return;  // decoded_values.cpp
  }
}

}  // namespace sluice::kernels::reference
