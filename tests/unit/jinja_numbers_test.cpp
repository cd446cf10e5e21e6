// Floating-point numbers as the template language prints them, compared with printf and <charconv>.
#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "jinja/numbers.h"

namespace sluice::jinja {
namespace {

std::string printed(char letter, double number, int precision) {
  const char format[] = {'%', '.', '*', letter, '\0'};
  std::vector<char> out(2000);
  std::snprintf(out.data(), out.size(), format, precision, number);
  return out.data();
}

std::vector<double> numbers() {
  std::vector<double> all = {0.0,
                             -0.0,
                             0.5,
                             1.5,
                             2.5,
                             0.05,
                             0.25,
                             9.5,
                             99.995,
                             1e16,
                             1e15,
                             1e-4,
                             9.999e-5,
                             1e21,
                             1e22,
                             1.0 / 3,
                             2.675,
                             1e300,
                             1e-300,
                             123456789012345678.0,
                             4503599627370497.5,
                             std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::min(),
                             std::numeric_limits<double>::denorm_min()};
  std::mt19937_64 random(11);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t bits = random();
    double number = 0;
    std::memcpy(&number, &bits, sizeof number);
    if (std::isfinite(number)) all.push_back(number);
    all.push_back(static_cast<double>(static_cast<int64_t>(bits >> 40)) / 64);  // many are ties
  }
  return all;
}

TEST(JinjaNumbers, FixedAndExponentTextsAreThoseOfPrintf) {
  for (const double number : numbers()) {
    for (const int precision : {0, 1, 2, 6, 17, 40}) {
      ASSERT_EQ(fixed_text(number, precision), printed('f', number, precision));
      ASSERT_EQ(exponent_text(number, precision), printed('e', number, precision));
    }
  }
  EXPECT_EQ(fixed_text(0.1, 1000), printed('f', 0.1, 1000));
}

TEST(JinjaNumbers, ShortestTextsAreThoseOfCharconv) {
  for (const double number : numbers()) {
    const double size = std::fabs(number);
    const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
    char text[40];
    const char* end =
        std::to_chars(text, text + sizeof text, number,
                      plain ? std::chars_format::fixed : std::chars_format::scientific)
            .ptr;
    ASSERT_EQ(shortest_text(number), std::string(text, static_cast<size_t>(end - text)));
    ASSERT_EQ(read_double(shortest_text(number)), number);
  }
}

TEST(JinjaNumbers, OnlyNumbersAreRead) {
  EXPECT_EQ(read_double("-1.5e3"), -1500);
  EXPECT_EQ(read_double("inf"), std::numeric_limits<double>::infinity());
  for (const char* text : {"", " 1", "1 ", "1x", "0x10", "1e400", "-", "--1"}) {
    EXPECT_FALSE(read_double(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace sluice::jinja
