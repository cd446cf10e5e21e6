// all_finite compared with the reference's dequantization: every f16 exponent in every scale of
// every block type, every E8M0 scale with every code, every element's exponent, in any block and at
// any alignment.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/matmul_util.h"

namespace sluice::kernels {
namespace {

// The result by dequantization. A scale that is not finite spoils its block for any codes.
bool expected(Type type, const uint8_t* src, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  reference::dequantize(type, src, n, values.data());
  for (const float v : values) {
    if (!std::isfinite(v)) return false;
  }
  return true;
}

// all_finite of one block, misaligned by `offset` bytes, with nothing after it.
bool answer(Type type, const std::vector<uint8_t>& block, size_t offset) {
  const Buffer data(block.data(), block.size(), offset);
  return all_finite(type, data.data(), reference::block_values(type));
}

TEST(Finite, EveryExponentInEveryScaleOfEveryBlock) {
  for (const WeightType& w : weight_types()) {
    const int64_t n = reference::block_values(w.type);
    for (const size_t at : w.halves) {
      for (uint32_t bits = 0; bits < 0x10000; bits += bits % 0x400 == 1 ? 0x3fe : 1) {
        std::vector<uint8_t> block = random_weights(w, 1, n, bits);
        const uint16_t half = static_cast<uint16_t>(bits);
        std::memcpy(&block[at], &half, 2);
        ASSERT_EQ(answer(w.type, block, bits % 7), expected(w.type, block.data(), n))
            << w.name << " " << at << " " << bits;
      }
    }
  }
}

TEST(Finite, EveryScaleOfMxfp4WithEveryCode) {
  for (int e = 0; e < 256; ++e) {
    for (int code = 0; code < 256; ++code) {
      std::vector<uint8_t> block(17, 0);
      block[0] = static_cast<uint8_t>(e);
      block[static_cast<size_t>(1 + code % 16)] = static_cast<uint8_t>(code);
      ASSERT_EQ(answer(Type::kMXFP4, block, 1),
                e != 255 && expected(Type::kMXFP4, block.data(), 32))
          << e << " " << code;
    }
  }
}

TEST(Finite, EveryScaleOfIq1M) {
  std::vector<uint8_t> block(sizeof(BlockIQ1_M), 0x5a);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    put_iq1_m_scale(block.data(), static_cast<f16>(bits));
    ASSERT_EQ(answer(Type::kIQ1_M, block, bits % 7), expected(Type::kIQ1_M, block.data(), 256))
        << bits;
  }
}

TEST(Finite, EveryScaleOfNvfp4IsFinite) {
  std::vector<uint8_t> block(sizeof(BlockNVFP4), 0x77);
  for (uint32_t e = 0; e < 256; ++e) {
    for (size_t i = 0; i < 4; ++i) block[i] = static_cast<uint8_t>(e);
    ASSERT_TRUE(expected(Type::kNVFP4, block.data(), 64)) << e;
    ASSERT_TRUE(answer(Type::kNVFP4, block, e % 7)) << e;
  }
}

TEST(Finite, EveryExponentOfEveryElement) {
  for (const Type type : {Type::kF32, Type::kF16, Type::kBF16}) {
    const size_t size = reference::block_bytes(type);
    for (uint32_t high = 0; high < 0x10000; ++high) {  // sign, exponent, most of the mantissa
      std::vector<uint8_t> value(size, high % 3 == 0 ? 1 : 0);
      value[size - 1] = static_cast<uint8_t>(high >> 8);
      value[size - 2] = static_cast<uint8_t>(high);
      ASSERT_EQ(answer(type, value, high % 5), expected(type, value.data(), 1)) << high;
    }
  }
}

TEST(Finite, AnyBlockOfARow) {
  for (const WeightType& w : weight_types()) {
    const int64_t n = 37 * reference::block_values(w.type);
    const std::vector<uint8_t> good = random_weights(w, 1, n, 3);
    EXPECT_TRUE(all_finite(w.type, good.data(), n)) << w.name;
    EXPECT_TRUE(all_finite(w.type, nullptr, 0)) << w.name;
    if (w.type == Type::kNVFP4) continue;
    const size_t block = reference::block_bytes(w.type);
    for (size_t i = 0; i < 37; ++i) {
      std::vector<uint8_t> row = good;
      const bool at_end = w.type == Type::kIQ1_M;
      const size_t scale = i * block + (at_end             ? block - 8
                                        : w.halves.empty() ? 0
                                                           : w.halves.back());
      const size_t bytes = at_end ? 8 : w.type == Type::kF32 ? 4 : w.type == Type::kMXFP4 ? 1 : 2;
      for (size_t b = 0; b < bytes; ++b) row[scale + b] = 0xff;
      EXPECT_FALSE(all_finite(w.type, row.data(), n)) << w.name << " " << i;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
