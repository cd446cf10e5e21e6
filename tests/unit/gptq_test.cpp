// Error feedback along rows: the factors of a Hessian, the targets that later columns see, and the
// error on the outputs with and without.
#include "convert/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "convert/quantize.h"
#include "gptq_inputs.h"
#include "kernels/kernels.h"
#include "kernels/reference/reference.h"

namespace sluice::convert {
namespace {

using kernels::Type;
using kernels::reference::block_bytes;
using kernels::reference::block_values;

// The types with error feedback.
std::vector<Type> types() {
  std::vector<Type> out;
  for (const Type type : {
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) Type::k##NAME,
#include "kernels/types.def"
       }) {
    if (best_quantizers().gptq(type) != nullptr) out.push_back(type);
  }
  return out;
}

// Quantizes rows of one span, `at_once` at a time.
std::vector<uint8_t> quantized(const Quantizers& by, Type type, const SpanFactors& factors,
                               const std::vector<float>& x, int at_once = GptqRoom::kRows) {
  const auto cols = static_cast<int64_t>(factors.cols);
  const int64_t bytes = cols / block_values(type) * static_cast<int64_t>(block_bytes(type));
  const auto rows = static_cast<int>(static_cast<int64_t>(x.size()) / cols);
  std::vector<uint8_t> out(static_cast<size_t>(rows * bytes));
  const auto room = std::make_unique<GptqRoom>();
  for (int row = 0; row < rows; row += at_once) {
    by.gptq(type)(factors,
                  {&kernels::best(), type, std::min(at_once, rows - row), x.data() + row * cols,
                   cols, out.data() + row * bytes, bytes},
                  room.get());
  }
  return out;
}
std::vector<float> decoded(Type type, const std::vector<uint8_t>& bytes, size_t n) {
  std::vector<float> y(n);
  kernels::best().dequantize(type, bytes.data(), static_cast<int64_t>(n), y.data());
  return y;
}

TEST(Gptq, SupportsTypesWithCodesAndCodebooks) {
  EXPECT_EQ(types().size(), 28u);
  for (const Type type : {Type::kF16, Type::kQ8_0}) {
    EXPECT_EQ(best_quantizers().gptq(type), nullptr);
  }
}

TEST(Gptq, SumsProductsOfInputsWithinSpans) {
  constexpr size_t kCols = 320, kTokens = 7;
  const std::vector<float> x = normal(kTokens * kCols, 4);
  const Hessian one = hessian_of(x, kCols, 256);
  Hessian many(kCols, 256);
  ThreadPool pool(3);
  many.add(x.data(), kCols, kTokens, &pool);
  ASSERT_EQ(one.n_spans(), 2u);
  EXPECT_EQ(one.bytes(), 4 * (256u * 257 / 2 + 64 * 65 / 2));
  for (uint64_t span = 0; span < 2; ++span) {
    const std::span<const float> sums = one.triangle(span), threaded = many.triangle(span);
    EXPECT_TRUE(std::equal(sums.begin(), sums.end(), threaded.begin(), threaded.end()));
    for (size_t i = 0; i < one.span_cols(span); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (size_t t = 0; t < kTokens; ++t) {
          sum += static_cast<double>(x[t * kCols + span * 256 + i]) * x[t * kCols + span * 256 + j];
        }
        ASSERT_NEAR(sums[i * (i + 1) / 2 + j], sum, 1e-4);
      }
    }
  }
}

TEST(Gptq, FactorsMultiplyToTheHessian) {
  constexpr size_t kCols = 40;
  const Hessian hessian = hessian_of(correlated(100, kCols), kCols, 256);
  const std::vector<SpanFactors> all = factors_of(hessian);
  ASSERT_EQ(all.size(), 1u);
  const SpanFactors& f = all[0];
  const std::vector<double> h = square_of(hessian, 0);
  const auto m = [&](size_t k, size_t i) {
    return k == i ? 1.0 : k < i ? static_cast<double>(f.feedback[i * (i - 1) / 2 + k]) : 0.0;
  };
  for (size_t a = 0; a < kCols; ++a) {
    for (size_t b = 0; b < kCols; ++b) {
      double sum = 0;
      for (size_t i = 0; i < kCols; ++i) sum += m(a, i) * f.weights[i] * m(b, i);
      ASSERT_NEAR(sum, h[a * kCols + b], 1e-4 * h[0]);
    }
  }
}

// After an error in the first octet, the errors that the factors ask of the others cost least: the
// cost's gradient is zero there.
TEST(Gptq, FactorsOfOctetsCompensateBest) {
  constexpr size_t kCols = 40;
  const Hessian hessian = hessian_of(correlated(100, kCols), kCols, 256);
  const SpanFactors f = factors_of(hessian)[0];
  const std::vector<double> h = square_of(hessian, 0);
  const std::vector<float> first = normal(8, 5);
  std::vector<double> e(first.begin(), first.end());
  e.resize(kCols);
  for (size_t i = 8; i < kCols; ++i) {
    for (size_t k = 0; k < i; ++k) {
      const float factor = f.octet_feedback[i * (i - 1) / 2 + k];
      ASSERT_TRUE(k / 8 != i / 8 || factor == 0);
      e[i] -= e[k] * factor;
    }
  }
  for (size_t i = 0; i < kCols; ++i) {
    double gradient = 0;
    for (size_t j = 0; j < kCols; ++j) gradient += h[i * kCols + j] * e[j];
    if (i < 8) continue;
    EXPECT_NEAR(gradient, 0, 1e-4 * h[0]);
  }
}

// Nearly all values of Q4_0 are the nearest to what the errors before them ask for. The others are
// in blocks that cost less with the codes of the whole block's search.
TEST(Gptq, ChoosesEachCodeForTheErrorsBeforeIt) {
  constexpr size_t kCols = 128, kRows = 20;
  const SpanFactors f = factors_of(hessian_of(correlated(500, kCols), kCols, 256))[0];
  const std::vector<float> x = normal(kRows * kCols, 6);
  const std::vector<uint8_t> bytes = quantized(best_quantizers(), Type::kQ4_0, f, x);
  const std::vector<float> y = decoded(Type::kQ4_0, bytes, x.size());
  size_t others = 0;
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<double> e(kCols);
    for (size_t i = 0; i < kCols; ++i) {
      const size_t at = row * kCols + i;
      double target = x[at];
      for (size_t k = 0; k < i; ++k) target += e[k] * f.feedback[i * (i - 1) / 2 + k];
      e[i] = static_cast<double>(x[at]) - y[at];
      kernels::f16 half;
      std::memcpy(&half, &bytes[at / 32 * 18], sizeof half);
      const double d = kernels::reference::f16_to_f32(half);
      const double code = std::clamp(std::nearbyint(target / d), -8.0, 7.0);
      others += std::fabs(target - y[at]) > std::fabs(target - code * d) + 1e-5 ? 1 : 0;
    }
  }
  EXPECT_LT(others, x.size() / 100);
}

std::vector<float> without_feedback(const Quantizers& by, Type type, const std::vector<float>& x,
                                    const std::vector<float>& w) {
  std::vector<uint8_t> blocks(x.size() * 4);
  by.of(type)(x.data(), w.data(), static_cast<int64_t>(x.size()), blocks.data());
  return decoded(type, blocks, x.size());
}

// Correlated inputs let every type lose less on the outputs.
TEST(Gptq, LowersTheErrorOfOutputs) {
  constexpr size_t kCols = 512, kRows = 16;
  const Hessian hessian = hessian_of(correlated(1000, kCols), kCols, 512);
  const SpanFactors f = factors_of(hessian)[0];
  const std::vector<double> h = square_of(hessian, 0);
  const std::vector<float> x = normal(kRows * kCols, 7);
  std::vector<float> w(x.size());
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(h[i % kCols * (kCols + 1)]);
  const Quantizers by = best_quantizers();
  for (const Type type : types()) {
    const std::vector<float> before = without_feedback(by, type, x, w);
    const std::vector<float> after = decoded(type, quantized(by, type, f, x), x.size());
    double without = 0, with = 0;
    for (size_t row = 0; row < kRows; ++row) {
      without += cost_of(h, &x[row * kCols], &before[row * kCols]);
      with += cost_of(h, &x[row * kCols], &after[row * kCols]);
    }
    EXPECT_LT(with, 0.4 * without) << static_cast<int>(type);
  }
}

// The bytes depend neither on the instruction set nor on the rows beside a row.
TEST(Gptq, WritesTheSameBytesEverywhere) {
  constexpr size_t kCols = 256, kRows = 5;
  const SpanFactors f = factors_of(hessian_of(correlated(300, kCols), kCols, 256))[0];
  const std::vector<float> x = normal(kRows * kCols, 8);
  for (const Type type : types()) {
    const std::vector<uint8_t> wanted = quantized(best_quantizers(), type, f, x);
    EXPECT_EQ(quantized(best_quantizers(), type, f, x, 2), wanted) << static_cast<int>(type);
    EXPECT_EQ(quantized(quantizers_by_name("scalar"), type, f, x), wanted)
        << static_cast<int>(type);
  }
}

// Without inputs, the result is no worse than without error feedback.
TEST(Gptq, KeepsTheErrorOfUncorrelatedInputs) {
  constexpr size_t kCols = 256, kRows = 4;
  const SpanFactors f = factors_of(Hessian(kCols, 256))[0];
  const std::vector<float> x = normal(kRows * kCols, 9), w(x.size(), 1);
  const Quantizers by = best_quantizers();
  for (const Type type : types()) {
    const std::vector<float> before = without_feedback(by, type, x, w);
    const std::vector<float> after = decoded(type, quantized(by, type, f, x), x.size());
    double without = 0, with = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      without += std::pow(x[i] - before[i], 2);
      with += std::pow(x[i] - after[i], 2);
    }
    EXPECT_LE(with, without * 1.000001) << static_cast<int>(type);
  }
}

}  // namespace
}  // namespace sluice::convert
