// Every vector function of every table that this machine runs, compared with the double-precision
// reference: all counts from 0 to 67 and a few long ones, all misalignments of a float. Buffers
// have the exact size, so that the address sanitizer sees an access out of bounds.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/tables_util.h"

namespace sluice::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Error budgets: a multiple of |expected| plus an absolute part.
struct Budget {
  double relative, absolute;
};
constexpr Budget kNormBudget{1e-6, 3e-7};
constexpr Budget kRopeBudget{0, 5e-7};  // for values around 1; the rotation may cancel
constexpr Budget kActivationBudget{1e-6, 1e-9};
constexpr Budget kGeluTailBudget{2e-6, 1e-9};
constexpr Budget kSoftmaxBudget{2e-6, 1e-12};
constexpr Budget kExactBudget{0, 0};

std::vector<int64_t> counts() {
  std::vector<int64_t> result;
  for (int64_t n = 0; n <= 67; ++n) result.push_back(n);
  for (const int64_t n : {128, 1000, 1023, 1024, 1025, 4096, 5000, 16384}) result.push_back(n);
  return result;
}

// n values that end at the end of their allocation and start `offset` after its beginning.
template <typename T>
class Buffer {
 public:
  Buffer(int64_t n, int offset, T fill = T{})
      : size_(static_cast<size_t>(n)),
        offset_(static_cast<size_t>(offset)),
        data_(new T[size_ + offset_]) {
    for (size_t i = 0; i < size_ + offset_; ++i) data_[i] = fill;
  }
  T* get() { return data_.get() + offset_; }
  T& operator[](size_t i) { return get()[i]; }

 private:
  size_t size_, offset_;
  std::unique_ptr<T[]> data_;
};

Buffer<float> normal(int64_t n, int offset, uint32_t seed, float sigma = 1, float mean = 0) {
  std::mt19937 rng(seed + static_cast<uint32_t>(n));
  std::normal_distribution<float> distribution(mean, sigma);
  Buffer<float> x(n, offset);
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) x[i] = distribution(rng);
  return x;
}

void expect_near(float got, double expected, Budget budget, const char* what, int64_t n, size_t i) {
  const double allowed = budget.relative * std::fabs(expected) + budget.absolute;
  if (std::fabs(got - expected) <= allowed) return;
  FAIL() << what << " of " << n << " values, [" << i << "]: " << got << " instead of " << expected;
}

// Runs body(table, count, offset) for all tables, counts and offsets.
void sweep(const std::function<void(const Table&, int64_t, int)>& body) {
  for (const Table* table : tables()) {
    for (const int64_t n : counts()) {
      for (int offset = 0; offset < (n <= 67 ? 16 : 3); offset += n % 3 == 0 ? 1 : 5) {
        body(*table, n, offset);
        if (testing::Test::HasFatalFailure()) {
          FAIL() << "table " << table->name << ", offset " << offset;
        }
      }
    }
  }
}

using Map1 = void (*)(const float*, int64_t, float*);
using Map2 = void (*)(const float*, const float*, int64_t, float*);

void check_map(const char* what, Map1 Table::*member, double (*expected)(double), float sigma,
               Budget budget) {
  sweep([&](const Table& table, int64_t n, int offset) {
    Buffer<float> x = normal(n, offset, 1, sigma);
    Buffer<float> out(n, (offset + 3) % 16, kNan);
    (table.*member)(x.get(), n, out.get());
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_near(out[i], expected(double{x[i]}), budget, what, n, i));
    }
    (table.*member)(x.get(), n, x.get());  // in place
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) ASSERT_EQ(x[i], out[i]) << what;
  });
}

void check_map(const char* what, Map2 Table::*member, double (*expected)(double, double),
               Budget budget) {
  sweep([&](const Table& table, int64_t n, int offset) {
    Buffer<float> a = normal(n, offset, 2, 3);
    Buffer<float> b = normal(n, (offset + 7) % 16, 3);
    Buffer<float> out(n, (offset + 3) % 16, kNan);
    (table.*member)(a.get(), b.get(), n, out.get());
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      ASSERT_NO_FATAL_FAILURE(
          expect_near(out[i], expected(double{a[i]}, double{b[i]}), budget, what, n, i));
    }
    (table.*member)(a.get(), b.get(), n, b.get());
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) ASSERT_EQ(b[i], out[i]) << what;
  });
}

TEST(Vector, Silu) {
  check_map("silu", &Table::silu, reference::silu, 5, kActivationBudget);
}
TEST(Vector, GeluTanh) {
  check_map("gelu_tanh", &Table::gelu_tanh, reference::gelu_tanh, 2, kGeluTailBudget);
}
TEST(Vector, GeluErf) {
  check_map("gelu_erf", &Table::gelu_erf, reference::gelu_erf, 2, kGeluTailBudget);
}
TEST(Vector, Xielu) {
  const Xielu sets[] = {{0.9f, 1.7f, 0.5f, -1e-6f}, {1.2f, 0.6f, 0.0f, -1e-6f}};
  for (const Xielu& by : sets) {
    for (const Table* table : tables()) {
      for (int64_t n = 0; n <= 67; ++n) {
        for (int offset = 0; offset < 3; ++offset) {
          Buffer<float> x(n, offset), out(n, offset);
          for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
            x[i] = 0.37f * static_cast<float>(static_cast<int>(i * 29 % 67) - 33);
          }
          table->xielu(x.get(), by, n, out.get());
          for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
            const double expected = reference::xielu(double{x[i]}, by);
            ASSERT_NEAR(out[i], expected, 1e-6 * std::fabs(expected) + 3e-7)
                << table->name << " at " << x[i];
          }
        }
      }
    }
  }
}
TEST(Vector, SiluMul) {
  check_map(
      "silu_mul", &Table::silu_mul, [](double g, double u) { return reference::silu(g) * u; },
      kActivationBudget);
}
TEST(Vector, GeluMul) {
  check_map(
      "gelu_mul", &Table::gelu_mul, [](double g, double u) { return reference::gelu_tanh(g) * u; },
      kGeluTailBudget);
}
TEST(Vector, Add) {
  check_map(
      "add", &Table::add, [](double a, double b) { return double(float(a + b)); }, kExactBudget);
}

// The whole range of the activations in fine steps, including the far tails.
TEST(Vector, ActivationsOverTheirRange) {
  for (const Table* table : tables()) {
    std::vector<float> x;
    for (float v = -120; v <= 120; v += 0.0137f) x.push_back(v);
    for (float v = 1e-8f; v < 1; v *= 1.3f) {
      x.push_back(v);
      x.push_back(-v);
    }
    const int64_t n = static_cast<int64_t>(x.size());
    std::vector<float> out(x.size());
    const auto check = [&](const char* what, Map1 f, double (*expected)(double)) {
      f(x.data(), n, out.data());
      for (size_t i = 0; i < x.size(); ++i) {
        // x^2 / 2 is rounded before exp sees it, so relative accuracy fades far out in the tail.
        const double slack = std::fabs(x[i]) * 3e-7 * std::fabs(expected(double{x[i]}));
        ASSERT_NEAR(out[i], expected(double{x[i]}), 1e-9 + 4 * slack + 1e-6 * std::fabs(x[i]) * 0.2)
            << table->name << " " << what << " at " << x[i];
      }
    };
    check("silu", table->silu, reference::silu);
    check("gelu_tanh", table->gelu_tanh, reference::gelu_tanh);
    check("gelu_erf", table->gelu_erf, reference::gelu_erf);
  }
}

TEST(Vector, NanStaysNan) {
  for (const Table* table : tables()) {
    for (const Map1 f : {table->silu, table->gelu_tanh, table->gelu_erf}) {
      float x[3] = {1, kNan, 2};
      f(x, 3, x);
      EXPECT_TRUE(std::isnan(x[1])) << table->name;
      EXPECT_FALSE(std::isnan(x[0])) << table->name;
      EXPECT_FALSE(std::isnan(x[2])) << table->name;
    }
    float x[3] = {1, kNan, 2};
    table->softmax(x, 3, x);
    EXPECT_TRUE(std::isnan(x[0])) << table->name;
  }
}

TEST(Vector, SoftCap) {
  sweep([](const Table& table, int64_t n, int offset) {
    for (const float cap : {30.0f, 50.0f, 1.0f}) {
      Buffer<float> x = normal(n, offset, 4, 20);
      Buffer<float> out(n, (offset + 3) % 16, kNan);
      table.soft_cap(x.get(), cap, n, out.get());
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        const double expected = cap * std::tanh(double{x[i]} / cap);
        ASSERT_NO_FATAL_FAILURE(expect_near(out[i], expected, kActivationBudget, "soft_cap", n, i));
      }
    }
  });
  for (const Table* table : tables()) {
    float x[4] = {kInf, -kInf, 1e30f, -0.0f};
    table->soft_cap(x, 30, 4, x);
    EXPECT_EQ(x[0], 30);
    EXPECT_EQ(x[1], -30);
    EXPECT_EQ(x[2], 30);
    EXPECT_EQ(x[3], 0);
  }
}

TEST(Vector, Scale) {
  sweep([](const Table& table, int64_t n, int offset) {
    Buffer<float> x = normal(n, offset, 5);
    Buffer<float> out(n, (offset + 3) % 16, kNan);
    table.scale(x.get(), 0.3f, n, out.get());
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) ASSERT_EQ(out[i], x[i] * 0.3f);
  });
}

TEST(Vector, RmsNorm) {
  sweep([](const Table& table, int64_t n, int offset) {
    if (n == 0) return;
    Buffer<float> x = normal(n, offset, 6, 100, 10);
    Buffer<float> w = normal(n, (offset + 5) % 16, 7);
    std::vector<double> expected(static_cast<size_t>(n));
    for (const bool weighted : {true, false}) {
      Buffer<float> out(n, (offset + 3) % 16, kNan);
      const float* weight = weighted ? w.get() : nullptr;
      table.rms_norm(x.get(), weight, 1e-5f, n, out.get());
      reference::rms_norm(x.get(), weight, double{1e-5f}, n, expected.data());
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        ASSERT_NO_FATAL_FAILURE(expect_near(out[i], expected[i], kNormBudget, "rms_norm", n, i));
      }
    }
  });
}

TEST(Vector, LayerNorm) {
  sweep([](const Table& table, int64_t n, int offset) {
    if (n < 2) return;
    Buffer<float> x = normal(n, offset, 8, 3, 50);  // a mean that would swamp a naive variance
    Buffer<float> w = normal(n, (offset + 5) % 16, 9);
    Buffer<float> b = normal(n, (offset + 9) % 16, 10);
    std::vector<double> expected(static_cast<size_t>(n));
    for (const int which : {0, 1, 2, 3}) {
      Buffer<float> out(n, (offset + 3) % 16, kNan);
      const float* weight = (which & 1) != 0 ? w.get() : nullptr;
      const float* bias = (which & 2) != 0 ? b.get() : nullptr;
      table.layer_norm(x.get(), weight, bias, 1e-5f, n, out.get());
      reference::layer_norm(x.get(), weight, bias, double{1e-5f}, n, expected.data());
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        ASSERT_NO_FATAL_FAILURE(expect_near(out[i], expected[i], kNormBudget, "layer_norm", n, i));
      }
    }
  });
}

TEST(Vector, NormsInPlace) {
  for (const Table* table : tables()) {
    Buffer<float> x = normal(37, 1, 11);
    Buffer<float> w = normal(37, 2, 12);
    Buffer<float> out(37, 0);
    table->rms_norm(x.get(), w.get(), 1e-6f, 37, out.get());
    Buffer<float> y = normal(37, 1, 11);
    table->rms_norm(y.get(), w.get(), 1e-6f, 37, y.get());
    for (size_t i = 0; i < 37; ++i) EXPECT_EQ(y[i], out[i]);
    table->layer_norm(x.get(), w.get(), w.get(), 1e-6f, 37, out.get());
    table->layer_norm(x.get(), w.get(), w.get(), 1e-6f, 37, x.get());
    for (size_t i = 0; i < 37; ++i) EXPECT_EQ(x[i], out[i]);
  }
}

TEST(Vector, Rope) {
  for (const Table* table : tables()) {
    for (int32_t n_rot = 0; n_rot <= 136; n_rot += 2) {
      for (int offset = 0; offset < 16; offset += 3) {
        for (const bool neox : {false, true}) {
          const int32_t head = n_rot + offset % 5;  // partial rotary
          Buffer<float> x = normal(head, offset, 13);
          Buffer<float> angle = normal(n_rot / 2, 0, 14, 3);
          Buffer<float> cos(n_rot / 2, offset), sin(n_rot / 2, (offset + 1) % 16);
          std::vector<double> expected;
          for (size_t i = 0; i < static_cast<size_t>(n_rot / 2); ++i) {
            cos[i] = std::cos(angle[i]);
            sin[i] = std::sin(angle[i]);
          }
          for (size_t i = 0; i < static_cast<size_t>(head); ++i) expected.push_back(x[i]);
          reference::rope(expected.data(), cos.get(), sin.get(), n_rot, neox);
          table->rope(x.get(), cos.get(), sin.get(), n_rot, neox);
          for (size_t i = 0; i < static_cast<size_t>(head); ++i) {
            ASSERT_NO_FATAL_FAILURE(
                expect_near(x[i], expected[i], kRopeBudget, table->name, n_rot, i));
          }
        }
      }
    }
  }
}

TEST(Vector, Softmax) {
  sweep([](const Table& table, int64_t n, int offset) {
    if (n == 0) {
      table.softmax(nullptr, 0, nullptr);
      return;
    }
    Buffer<float> x = normal(n, offset, 15, 5, 1000);
    if (n > 3) x[static_cast<size_t>(n / 2)] = -kInf;
    Buffer<float> out(n, (offset + 3) % 16, kNan);
    std::vector<double> expected(static_cast<size_t>(n));
    reference::softmax(x.get(), n, expected.data());
    table.softmax(x.get(), n, out.get());
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_near(out[i], expected[i], kSoftmaxBudget, "softmax", n, i));
    }
    table.softmax(x.get(), n, x.get());
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) ASSERT_EQ(x[i], out[i]);
  });
}

TEST(Vector, Argmax) {
  sweep([](const Table& table, int64_t n, int offset) {
    Buffer<float> x = normal(n, offset, 16);
    int64_t expected = 0;
    for (int64_t i = 1; i < n; ++i) {
      if (x[static_cast<size_t>(i)] > x[static_cast<size_t>(expected)]) expected = i;
    }
    ASSERT_EQ(table.argmax(x.get(), n), expected);
    if (n < 2) return;
    x[static_cast<size_t>(n - 1)] = x[static_cast<size_t>(expected)];  // the first of equal values
    ASSERT_EQ(table.argmax(x.get(), n), expected);
    x[0] = kNan;
    x[static_cast<size_t>(n - 1)] = 1e9f;
    ASSERT_EQ(table.argmax(x.get(), n), n - 1);
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) x[i] = i % 2 == 0 ? kNan : -kInf;
    const int64_t any = table.argmax(x.get(), n);
    ASSERT_GE(any, 0);
    ASSERT_LT(any, n);
  });
}

TEST(Vector, AllHalvesConvertExactly) {
  for (const Table* table : tables()) {
    std::vector<f16> half(65536);
    for (size_t i = 0; i < half.size(); ++i) half[i] = static_cast<f16>(i);
    std::vector<float> wide(half.size());
    table->f16_to_f32(half.data(), 65536, wide.data());
    for (size_t i = 0; i < half.size(); ++i) {
      const float expected = reference::f16_to_f32(half[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << table->name << " " << i;
      } else {
        ASSERT_EQ(std::memcmp(&wide[i], &expected, sizeof expected), 0) << table->name << " " << i;
      }
    }
    std::vector<f16> back(half.size());
    table->f32_to_f16(wide.data(), 65536, back.data());
    for (size_t i = 0; i < half.size(); ++i) {
      if (std::isnan(wide[i])) {
        ASSERT_EQ(back[i] & 0x7c00, 0x7c00);
        ASSERT_NE(back[i] & 0x03ff, 0);
      } else {
        ASSERT_EQ(back[i], half[i]) << table->name;
      }
    }
  }
}

// Around every half and every midpoint between two halves: nearest, ties to even.
TEST(Vector, FloatsRoundToTheNearestHalf) {
  std::vector<float> x{65504,    65519.996f, 65520,        65536,    1e30f,
                       kInf,     0,          0x1p-24f,     0x1p-25f, 0x1.000002p-25f,
                       0x1p-26f, 1e-45f,     0x1.ffcp-15f, 0x1p-14f};
  for (uint32_t h = 0; h < 0x7bff; ++h) {
    const float low = reference::f16_to_f32(static_cast<f16>(h));
    const float middle = 0.5f * low + 0.5f * reference::f16_to_f32(static_cast<f16>(h + 1));
    for (const float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, kInf)}) {
      x.push_back(v);
    }
  }
  const size_t n = x.size();
  for (size_t i = 0; i < n; ++i) x.push_back(-x[i]);
  std::vector<f16> expected;
  for (const float v : x) expected.push_back(reference::f32_to_f16(v));
  // The reference itself, at the values that most easily go wrong.
  EXPECT_EQ(expected[1], 0x7bff);
  EXPECT_EQ(expected[2], 0x7c00);
  EXPECT_EQ(expected[7], 1);
  EXPECT_EQ(expected[8], 0);
  EXPECT_EQ(expected[9], 1);
  EXPECT_EQ(expected[n], 0xfbff);
  for (const Table* table : tables()) {
    std::vector<f16> got(x.size());
    table->f32_to_f16(x.data(), static_cast<int64_t>(x.size()), got.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(got[i], expected[i]) << table->name << " " << x[i];
    }
  }
}

TEST(Vector, HalvesAtEveryCountAndOffset) {
  sweep([](const Table& table, int64_t n, int offset) {
    Buffer<float> x = normal(n, offset, 17);
    Buffer<f16> half(n, (offset + 1) % 16);
    Buffer<float> back(n, (offset + 2) % 16, kNan);
    table.f32_to_f16(x.get(), n, half.get());
    table.f16_to_f32(half.get(), n, back.get());
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      ASSERT_EQ(half[i], reference::f32_to_f16(x[i]));
      ASSERT_EQ(back[i], reference::f16_to_f32(half[i]));
    }
  });
}

}  // namespace
}  // namespace sluice::kernels
