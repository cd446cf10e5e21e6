// The quantizers: the error of the decoded result on typical and on unusual rows, the same bytes
// from every instruction set, and the effect of error weights and zeros.
#include "convert/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/reference/reference.h"

namespace sluice::convert {
namespace {

using kernels::Type;
using kernels::reference::block_bytes;
using kernels::reference::block_values;

struct Bound {
  Type type;
  const char* name;
  double normal, heavy;  // maximum error, as a share of the values' power
};
// One percent above what was measured, so that a worse search shows. All are below the losses of
// llama-quantize on such rows (on normal ones Q4_0 0.0074, Q4_K 0.0051, Q2_K 0.088, TQ2_0 0.65).
constexpr Bound kBounds[] = {
    {Type::kF32, "F32", 0, 0},
    {Type::kF16, "F16", 1e-7, 1e-7},
    {Type::kBF16, "BF16", 4e-6, 4e-6},
    {Type::kQ4_0, "Q4_0", 0.006642, 0.01662},
    {Type::kQ4_1, "Q4_1", 0.005212, 0.008782},
    {Type::kQ5_0, "Q5_0", 0.001585, 0.004421},
    {Type::kQ5_1, "Q5_1", 0.001201, 0.002044},
    {Type::kQ8_0, "Q8_0", 2.466e-05, 6.591e-05},
    {Type::kQ2_K, "Q2_K", 0.07458, 0.09593},
    {Type::kQ3_K, "Q3_K", 0.02139, 0.03687},
    {Type::kQ4_K, "Q4_K", 0.005046, 0.008829},
    {Type::kQ5_K, "Q5_K", 0.001224, 0.002121},
    {Type::kQ6_K, "Q6_K", 0.000277, 0.0006201},
    {Type::kIQ4_NL, "IQ4_NL", 0.005353, 0.01043},
    {Type::kIQ4_XS, "IQ4_XS", 0.00541, 0.01069},
    {Type::kMXFP4, "MXFP4", 0.01259, 0.01944},
    {Type::kTQ1_0, "TQ1_0", 0.1996, 0.3771},
    {Type::kTQ2_0, "TQ2_0", 0.1996, 0.3771},
    {Type::kIQ1_S, "IQ1_S", 0.2247, 0.3707},
    {Type::kIQ1_M, "IQ1_M", 0.1883, 0.2427},
    {Type::kIQ2_XXS, "IQ2_XXS", 0.1238, 0.2572},
    {Type::kIQ2_XS, "IQ2_XS", 0.0903, 0.1519},
    {Type::kIQ2_S, "IQ2_S", 0.06218, 0.1375},
    {Type::kIQ3_XXS, "IQ3_XXS", 0.03288, 0.04939},
    {Type::kIQ3_S, "IQ3_S", 0.01725, 0.03082},
    {Type::kNVFP4, "NVFP4", 0.008634, 0.008111},
    {Type::kQ1_0, "Q1_0", 0.3641, 0.5911},
    {Type::kQ2_0, "Q2_0", 0.1461, 0.2581},
    {Type::kQSF2, "QSF2", 0.1208, 0.2413},
    {Type::kQSF3, "QSF3", 0.02951, 0.06401},
    {Type::kQSF4, "QSF4", 0.007074, 0.01556},
    {Type::kQSFT, "QSFT", 0.1941, 0.3119},
};

std::vector<float> normal_values(size_t n, float sigma) {
  std::mt19937 random(7);
  std::normal_distribution<float> draw(0, sigma);
  std::vector<float> x(n);
  for (float& v : x) v = draw(random);
  return x;
}
// Student's t with three degrees of freedom: a few values are ten times as large as most.
std::vector<float> heavy_values(size_t n, float sigma) {
  std::mt19937 random(8);
  std::student_t_distribution<float> draw(3);
  std::vector<float> x(n);
  for (float& v : x) v = sigma * draw(random);
  return x;
}

std::vector<uint8_t> quantized(const Quantizers& by, Type type, const std::vector<float>& x,
                               const std::vector<float>& w) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<uint8_t> out(static_cast<size_t>(n / block_values(type)) * block_bytes(type));
  by.of(type)(x.data(), w.data(), n, out.data());
  return out;
}
std::vector<float> decoded(Type type, const std::vector<uint8_t>& bytes, size_t n) {
  std::vector<float> y(n);
  kernels::reference::dequantize(type, bytes.data(), static_cast<int64_t>(n), y.data());
  return y;
}
double share_of_error(Type type, const std::vector<float>& x, const std::vector<float>& w,
                      const std::vector<float>& judged_by) {
  const std::vector<float> y = decoded(type, quantized(best_quantizers(), type, x, w), x.size());
  double error = 0, power = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += judged_by[i] * std::pow(static_cast<double>(x[i]) - y[i], 2);
    power += judged_by[i] * std::pow(static_cast<double>(x[i]), 2);
  }
  return error / power;
}
double share_of_error(Type type, const std::vector<float>& x) {
  const std::vector<float> ones(x.size(), 1);
  return share_of_error(type, x, ones, ones);
}

class Quantize : public testing::TestWithParam<Bound> {};

TEST_P(Quantize, ErrorIsBelowItsBound) {
  const Bound& b = GetParam();
  const double normal = share_of_error(b.type, normal_values(1 << 14, 0.02f));
  const double heavy = share_of_error(b.type, heavy_values(1 << 14, 0.02f));
  EXPECT_LE(normal, b.normal);
  EXPECT_LE(heavy, b.heavy);
}

TEST_P(Quantize, EveryInstructionSetWritesTheSameBytes) {
  const Bound& b = GetParam();
  const std::vector<float> x = heavy_values(1 << 12, 0.02f), w = heavy_values(1 << 12, 1);
  std::vector<float> weights(w.size());
  for (size_t i = 0; i < w.size(); ++i) weights[i] = w[i] * w[i];
  const std::vector<uint8_t> best = quantized(best_quantizers(), b.type, x, weights);
  EXPECT_EQ(quantized(quantizers_by_name("scalar"), b.type, x, weights), best);
  if (std::string(kernels::best().name) == "avx512vnni") {
    EXPECT_EQ(quantized(quantizers_by_name("avx2"), b.type, x, weights), best);
  }
}

// Zeros, values almost or entirely too small for a scale, a single value, and a constant: nothing
// divides by zero, and zero stays zero if the type has it.
TEST_P(Quantize, OddRowsStayFinite) {
  const Type type = GetParam().type;
  for (const float value : {0.0f, 1e-40f, 1e-20f, -3e-7f, -3e-6f, 0.5f, -1e4f}) {
    const float size = std::fabs(value);
    if (type == Type::kNVFP4 && ((size > 0 && size < 0.001f) || size > 2688)) {
      continue;  // its scales end at 2^-9 and 448
    }
    for (const bool alone : {false, true}) {
      if (type == Type::kQ1_0 && alone) continue;  // all values of a block have one size
      std::vector<float> x(256, alone ? 0 : value), ones(256, 1), none(256, 0);
      x[37] = value;
      const std::vector<float> y = decoded(type, quantized(best_quantizers(), type, x, ones), 256);
      const std::vector<float> z = decoded(type, quantized(best_quantizers(), type, x, none), 256);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(std::isfinite(y[i]) && std::isfinite(z[i])) << value;
        ASSERT_LE(std::fabs(y[i] - x[i]), std::max(std::fabs(value) * 0.34f, 4e-7f)) << value;
      }
    }
  }
}

// Columns with larger weights get a smaller error.
TEST_P(Quantize, ErrorWeightsLowerTheWeightedError) {
  const Type type = GetParam().type;
  if (block_values(type) == 1) GTEST_SKIP() << "each value is rounded by itself";
  const std::vector<float> x = normal_values(1 << 13, 0.02f), ones(x.size(), 1);
  std::vector<float> w(x.size());
  for (size_t i = 0; i < w.size(); ++i) w[i] = i % 7 == 0 ? 20 : 0.5f;
  EXPECT_LE(share_of_error(type, x, w, w), share_of_error(type, x, ones, w) * 1.0001);
}

INSTANTIATE_TEST_SUITE_P(Types, Quantize, testing::ValuesIn(kBounds),
                         [](const auto& info) { return std::string(info.param.name); });

// Weights that are already ternary, like BitNet's, are unchanged.
TEST(QuantizeTernary, KeepsTernaryWeights) {
  std::mt19937 random(9);
  std::vector<float> x(512), ones(512, 1);
  for (float& v : x) v = 0.03125f * static_cast<float>(static_cast<int>(random() % 3) - 1);
  for (const Type type : {Type::kTQ1_0, Type::kTQ2_0, Type::kQSFT}) {
    EXPECT_EQ(decoded(type, quantized(best_quantizers(), type, x, ones), 512), x);
  }
}

// The loss of QSF blocks if the largest value sets the scale: value = low + (high - low) / most *
// code, and -d, 0, d.
double share_lost_by_the_largest(Type type, const std::vector<float>& x) {
  double error = 0, power = 0;
  for (size_t at = 0; at < x.size(); at += 64) {
    const auto [low, high] = std::minmax_element(&x[at], &x[at] + 64);
    const int bits = type == Type::kQSF2 ? 2 : type == Type::kQSF3 ? 3 : 4;
    const float ternary = std::max(-*low, *high),
                step = (*high - *low) / static_cast<float>((1 << bits) - 1);
    for (size_t i = at; i < at + 64; ++i) {
      const float y = type == Type::kQSFT ? ternary * std::round(x[i] / ternary)
                                          : *low + step * std::round((x[i] - *low) / step);
      error += std::pow(static_cast<double>(x[i]) - y, 2);
      power += std::pow(static_cast<double>(x[i]), 2);
    }
  }
  return error / power;
}

TEST(QuantizeQsf, LosesLessThanScalingByTheLargestValue) {
  const std::pair<Type, double> kShares[] = {
      {Type::kQSF2, 0.7}, {Type::kQSF3, 0.8}, {Type::kQSF4, 0.95}, {Type::kQSFT, 0.7}};
  for (const auto& [type, share] : kShares) {
    for (const auto& x : {normal_values(1 << 14, 0.02f), heavy_values(1 << 14, 0.02f)}) {
      EXPECT_LT(share_of_error(type, x), share * share_lost_by_the_largest(type, x))
          << static_cast<uint32_t>(type);
    }
  }
}

// A block's bits as the format defines them, written and read by hand.
TEST(QuantizeQsf, WritesTheBitsOfTheFormat) {
  std::vector<float> x(64), ones(64, 1);
  for (size_t i = 0; i < 64; ++i) x[i] = 0.25f * static_cast<float>(i * 5 % 8) - 1;
  const std::vector<uint8_t> line = quantized(best_quantizers(), Type::kQSF3, x, ones);
  ASSERT_EQ(line.size(), 28u);
  EXPECT_EQ(line[0] | line[1] << 8, 0x3400);  // 0.25
  EXPECT_EQ(line[2] | line[3] << 8, 0xbc00);  // -1
  for (size_t i = 0; i < 64; ++i) {
    size_t code = 0;
    for (size_t b = 0; b < 3; ++b) {
      const size_t bit = 3 * i + b;
      code |= static_cast<size_t>(line[4 + bit / 8] >> bit % 8 & 1) << b;
    }
    EXPECT_EQ(code, i * 5 % 8) << i;
  }
  for (size_t i = 0; i < 64; ++i) x[i] = 0.5f * static_cast<float>(static_cast<int>(i * 5 % 3) - 1);
  const std::vector<uint8_t> signs = quantized(best_quantizers(), Type::kQSFT, x, ones);
  ASSERT_EQ(signs.size(), 18u);
  EXPECT_EQ(signs[0] | signs[1] << 8, 0x3800);  // 0.5
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(signs[2 + i / 8] >> i % 8 & 1, x[i] < 0) << i;
    EXPECT_EQ(signs[10 + i / 8] >> i % 8 & 1, x[i] == 0) << i;
  }
}

// F16 bits equal the rounding of the reference kernels, including ties and subnormals.
TEST(QuantizeF16, RoundsLikeTheReference) {
  std::vector<float> x = {0.0f, -0.0f, 65504, 1e-9f}, ones;
  for (int e = -27; e < 16; ++e) {
    for (const float part : {1.0f, 1.00048828125f, 1.000732421875f, 1.0009765625f, 1.3f, 1.9998f}) {
      x.push_back(std::ldexp(part, e));
      x.push_back(-x.back());
    }
  }
  ones.resize(x.size(), 1);
  const std::vector<uint8_t> bytes = quantized(best_quantizers(), Type::kF16, x, ones);
  for (size_t i = 0; i < x.size(); ++i) {
    const kernels::f16 wanted = kernels::reference::f32_to_f16(x[i]);
    EXPECT_EQ(bytes[2 * i] | bytes[2 * i + 1] << 8, wanted) << x[i];
  }
}

}  // namespace
}  // namespace sluice::convert
