// Numbers for people: three significant digits, no exponents.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace sluice {

// "0", "0.05", "7.31", "42.3", "960", "19900"
[[nodiscard]] inline std::string human_number(double value) {
  char text[32];
  const int digits = value == 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Bytes in powers of 1000, as files and disks are measured: "512 bytes", "67.1 MB", "2.50 GB".
// Powers of 1024, which --memory-budget takes, have other names (MiB).
[[nodiscard]] inline std::string decimal_bytes(uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " bytes";
  const char* const units[] = {"kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  for (; value >= 999.5 && unit < 3; ++unit) value /= 1000;
  return human_number(value) + ' ' + units[unit];
}

}  // namespace sluice
