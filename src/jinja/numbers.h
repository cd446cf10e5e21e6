// Conversion of floating-point numbers, exact in both directions and independent of the locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::jinja {

// nullopt unless all of `text` is a decimal number, "inf" or "nan", or if it is too large.
// bindings/chat implements it for WebAssembly.
[[nodiscard]] std::optional<double> read_double(std::string_view text);

// The value of a digit or a letter; 36 for other characters.
[[nodiscard]] unsigned digit_value(char c);
// nullopt unless all of `text` is an integer of 64 bits, with an optional minus.
[[nodiscard]] std::optional<int64_t> read_whole(std::string_view text, unsigned base = 10);

// The texts of finite numbers, rounded half to even. `precision`: decimals, at most 1000.
[[nodiscard]] std::string fixed_text(double number, int precision);
[[nodiscard]] std::string exponent_text(double number, int precision);
// The shortest digits that read_double() turns into the same number; with an exponent below 1e-4
// and from 1e16 on.
[[nodiscard]] std::string shortest_text(double number);

}  // namespace sluice::jinja
