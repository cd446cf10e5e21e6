// Calendar time. The conversions of the C library are not thread-safe; these are.
#pragma once

#include <ctime>

namespace sluice::platform {

[[nodiscard]] std::tm local_time(std::time_t when);
[[nodiscard]] std::tm utc_time(std::time_t when);

}  // namespace sluice::platform
