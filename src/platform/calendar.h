// The calendar's time, whose conversions C leaves unsafe between threads.
#pragma once

#include <ctime>

namespace sluice::platform {

[[nodiscard]] std::tm local_time(std::time_t when);
[[nodiscard]] std::tm utc_time(std::time_t when);

}  // namespace sluice::platform
