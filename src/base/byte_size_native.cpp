#include <charconv>
#include <cmath>
#include <string>

#include "base/byte_size.h"

namespace sluice {
namespace {

// What a unit multiplies by; 0: not a unit.
double factor_of(std::string unit) {
  for (char& c : unit) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  if (unit.empty() || unit == "b") return 1;
  const size_t power = std::string_view("kmgt").find(unit[0]);
  const std::string_view rest = std::string_view(unit).substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) return 0;
  return std::ldexp(1, 10 * (static_cast<int>(power) + 1));
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, bad] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const size_t digits = static_cast<size_t>(rest - text.data());
  const bool a_number = digits > 0 && is_digit(text[0]) && is_digit(text[digits - 1]);
  const char* const unit = rest < end && *rest == ' ' && rest + 1 < end ? rest + 1 : rest;
  const double factor = a_number ? factor_of(std::string(unit, end)) : 0;
  const int length = static_cast<int>(text.size() < 32 ? text.size() : 32);
  if (factor == 0) {
    return error(Code::kInvalidArgument, "\"%.*s\" is not a size such as 64M or 1.5G", length,
                 text.data());
  }
  if (bad != std::errc() || number * factor > static_cast<double>(kMaxByteSize)) {
    return error(Code::kInvalidArgument, "the size \"%.*s\" is out of range: use 0 to %lluG",
                 length, text.data(), static_cast<unsigned long long>(kMaxByteSize >> 30));
  }
  return static_cast<uint64_t>(std::llround(number * factor));
}

}  // namespace sluice
