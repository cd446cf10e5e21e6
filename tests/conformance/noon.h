// The time that the expected prompts of templates were made at.
#pragma once

#include <ctime>

namespace sluice::test {

// Noon of 26 July 2024, local time.
inline std::time_t noon() {
  std::tm day{};
  day.tm_year = 124;
  day.tm_mon = 6;
  day.tm_mday = 26;
  day.tm_hour = 12;
  day.tm_isdst = -1;
  return std::mktime(&day);
}

}  // namespace sluice::test
