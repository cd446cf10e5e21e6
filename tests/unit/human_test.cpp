// Numbers and sizes as people read them: no exponents, and kB, MB and GB are powers of 1000.
#include "native/human.h"

#include <gtest/gtest.h>

namespace sluice::test {
namespace {

TEST(Human, NumbersHaveThreeDigitsAndNoExponent) {
  const std::pair<double, const char*> cases[] = {
      {0, "0"},       {0.0461, "0.05"}, {7.314, "7.31"}, {9.996, "10.0"},  {42.26, "42.3"},
      {99.96, "100"}, {140.4, "140"},   {999.6, "1000"}, {19900, "19900"}, {1.5e9, "1500000000"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(human_number(value), text);
}

TEST(Human, BytesAreInPowersOf1000) {
  const std::pair<uint64_t, const char*> cases[] = {{0, "0 bytes"},
                                                    {999, "999 bytes"},
                                                    {1000, "1.00 kB"},
                                                    {1024, "1.02 kB"},
                                                    {583'000, "583 kB"},
                                                    {999'499, "999 kB"},
                                                    {999'500, "1.00 MB"},
                                                    {64 << 20, "67.1 MB"},
                                                    {2'500'000'000, "2.50 GB"},
                                                    {12'000'000'000'000, "12.0 TB"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(decimal_bytes(bytes), text);
}

}  // namespace
}  // namespace sluice::test
