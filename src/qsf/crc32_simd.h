// CRC-32 with the processor's instructions. x86 has none for this polynomial, so 16-byte blocks are
// folded by carry-less multiplication (V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel, 2009). ARMv8 has an instruction for it.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "platform/cpu_features.h"
#include "qsf/crc32.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::qsf {

inline constexpr uint32_t kPolynomial = 0xEDB88320u;

// The CRC register after `bits` zero bits.
constexpr uint32_t shifted(uint32_t sum, int bits) {
  for (int i = 0; i < bits; ++i) sum = (sum >> 1) ^ (kPolynomial & (0u - (sum & 1)));
  return sum;
}

#if defined(__x86_64__)

inline bool has_crc_instructions() {
  static const bool has = platform::has_pclmul();
  return has;
}

// x to the power of `bits`, as a factor: a product of reflected polynomials is shifted by one bit.
constexpr int64_t fold_factor(int bits) {
  return int64_t{shifted(0x80000000u, bits)} << 1;
}

// Moves a block `factors` further on and adds it to the one that is there.
__attribute__((target("pclmul"))) inline __m128i folded(__m128i block, __m128i factors,
                                                        __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(block, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(block, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// Consumes whole blocks of 64 bytes, then of 16. Returns the register behind them.
__attribute__((target("pclmul"))) inline uint32_t instruction_pass(std::span<const uint8_t>* bytes,
                                                                   uint32_t sum) {
  if (bytes->size() < 64) return sum;
  const uint8_t* at = bytes->data();
  const uint8_t* const end = at + bytes->size();
  const auto block = [&at](int i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * i));
  };
  constexpr int kBlock = 128, kFour = 4 * kBlock;  // bits
  const __m128i four = _mm_set_epi64x(fold_factor(kFour - 32), fold_factor(kFour + 32));
  const __m128i one = _mm_set_epi64x(fold_factor(kBlock - 32), fold_factor(kBlock + 32));
  __m128i a = _mm_xor_si128(block(0), _mm_cvtsi32_si128(static_cast<int32_t>(sum)));
  __m128i b = block(1), c = block(2), d = block(3);
  for (at += 64; end - at >= 64; at += 64) {
    a = folded(a, four, block(0));
    b = folded(b, four, block(1));
    c = folded(c, four, block(2));
    d = folded(d, four, block(3));
  }
  a = folded(folded(folded(a, one, b), one, c), one, d);
  for (; end - at >= 16; at += 16) a = folded(a, one, block(0));
  *bytes = bytes->subspan(static_cast<size_t>(at - bytes->data()));
  // The last block has the remainder of all of them.
  uint8_t last[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(last), a);
  return ~crc32_by_tables(last, ~0u);
}

#elif defined(__aarch64__)

inline bool has_crc_instructions() {
  static const bool has = platform::has_crc32();
  return has;
}

// Consumes whole words of 8 bytes. Returns the register behind them.
#if defined(__clang__)
__attribute__((target("crc")))
#else
__attribute__((target("+crc")))
#endif
inline uint32_t
instruction_pass(std::span<const uint8_t>* bytes, uint32_t sum) {
  for (; bytes->size() >= 8; *bytes = bytes->subspan(8)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes->data(), 8);
#if defined(__clang__)
    sum = __builtin_arm_crc32d(sum, word);
#else
    sum = __builtin_aarch64_crc32x(sum, word);
#endif
  }
  return sum;
}

#else

inline bool has_crc_instructions() {
  return false;
}
inline uint32_t instruction_pass(std::span<const uint8_t>*, uint32_t sum) {
  return sum;
}

#endif

}  // namespace sluice::qsf
