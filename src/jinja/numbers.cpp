// Formats numbers from all of their decimal digits, of which a double has at most 767.
#include "jinja/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace sluice::jinja {
namespace {

// 0.digits * 10^point; no digits: zero.
struct Decimal {
  std::string digits;
  int point = 0;
};

constexpr uint32_t kLimb = 1'000'000'000;

Decimal decimal_of(double number) {
  Decimal out;
  if (number == 0) return out;
  int exponent = 0;
  auto whole = static_cast<uint64_t>(std::frexp(std::fabs(number), &exponent) * 0x1p53);
  exponent -= 53;
  std::vector<uint32_t> limbs;  // the lowest first
  for (; whole > 0; whole /= kLimb) limbs.push_back(static_cast<uint32_t>(whole % kLimb));
  // whole * 2^exponent, or whole * 5^-exponent with as many decimals.
  const uint64_t base = exponent > 0 ? 2 : 5;
  for (int left = std::abs(exponent); left > 0;) {
    uint64_t factor = 1, carry = 0;
    for (; left > 0 && factor * base < kLimb; --left) factor *= base;
    for (uint32_t& limb : limbs) {
      carry += limb * factor;
      limb = static_cast<uint32_t>(carry % kLimb);
      carry /= kLimb;
    }
    if (carry > 0) limbs.push_back(static_cast<uint32_t>(carry));
  }
  for (uint32_t limb : limbs) {
    for (int i = 0; i < 9; ++i, limb /= 10) out.digits += static_cast<char>('0' + limb % 10);
  }
  while (out.digits.back() == '0') out.digits.pop_back();
  out.point = static_cast<int>(out.digits.size()) + std::min(exponent, 0);
  std::reverse(out.digits.begin(), out.digits.end());
  return out;
}

// The number rounded to its first `count` digits, which are padded with zeros.
Decimal rounded(Decimal from, int count) {
  std::string& digits = from.digits;
  const auto size = static_cast<size_t>(std::max(count, 0));
  bool up = false;
  if (count >= 0 && size < digits.size()) {
    const bool odd = size > 0 && (digits[size - 1] - '0') % 2 == 1;
    const bool half = digits[size] == '5' && digits.find_first_not_of('0', size + 1) == digits.npos;
    up = half ? odd : digits[size] >= '5';
  }
  digits.resize(size, '0');
  size_t at = size;
  while (up && at > 0) {
    up = ++digits[--at] > '9';
    if (up) digits[at] = '0';
  }
  if (up) {
    digits.insert(0, 1, '1');
    ++from.point;
  }
  return from;
}

std::string with_point(std::string digits, size_t at) {
  if (at < digits.size()) digits.insert(at, 1, '.');
  return digits;
}

std::string with_exponent(const Decimal& number, int precision) {
  Decimal made = rounded(number, precision + 1);
  if (number.digits.empty()) made.point = 1;
  made.digits.resize(static_cast<size_t>(precision) + 1);
  const int exponent = std::abs(made.point - 1);
  return with_point(std::move(made.digits), 1) + (made.point < 1 ? "e-" : "e+") +
         (exponent < 10 ? "0" : "") + std::to_string(exponent);
}

std::string with_decimals(const Decimal& number, int precision) {
  Decimal made = rounded(number, number.point + precision);
  const auto size = static_cast<size_t>(precision) + 1;  // at least one digit before the point
  if (made.digits.size() < size) made.digits.insert(0, size - made.digits.size(), '0');
  const size_t point = made.digits.size() - static_cast<size_t>(precision);
  return with_point(std::move(made.digits), point);
}

const char* sign_of(double number) {
  return std::signbit(number) ? "-" : "";
}

}  // namespace

unsigned digit_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  const auto letter = static_cast<unsigned>((c | 0x20) - 'a');
  return letter < 26 ? letter + 10 : 36;
}

std::optional<int64_t> read_whole(std::string_view text, unsigned base) {
  const bool minus = text.starts_with('-');
  if (minus) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  const uint64_t most = static_cast<uint64_t>(INT64_MAX) + (minus ? 1 : 0);
  uint64_t value = 0;
  for (const char c : text) {
    const unsigned digit = digit_value(c);
    if (digit >= base || value > (most - digit) / base) return std::nullopt;
    value = value * base + digit;
  }
  return static_cast<int64_t>(minus ? 0 - value : value);
}

std::string fixed_text(double number, int precision) {
  return sign_of(number) + with_decimals(decimal_of(number), precision);
}

std::string exponent_text(double number, int precision) {
  return sign_of(number) + with_exponent(decimal_of(number), precision);
}

std::string shortest_text(double number) {
  if (number == 0) return sign_of(number) + std::string("0");
  const Decimal all = decimal_of(number);
  const double size = std::fabs(number);
  const bool plain = size >= 1e-4 && size < 1e16;
  int precision = 0;
  std::string text = with_exponent(all, 0);
  while (read_double(text) != size) text = with_exponent(all, ++precision);
  if (plain) text = with_decimals(all, std::max(0, precision + 1 - all.point));
  return sign_of(number) + text;
}

}  // namespace sluice::jinja
