#include "platform/calendar.h"

namespace sluice::platform {

std::tm local_time(std::time_t when) {
  std::tm out{};
#if defined(_WIN32)
  localtime_s(&out, &when);
#else
  localtime_r(&when, &out);
#endif
  return out;
}

std::tm utc_time(std::time_t when) {
  std::tm out{};
#if defined(_WIN32)
  gmtime_s(&out, &when);
#else
  gmtime_r(&when, &out);
#endif
  return out;
}

}  // namespace sluice::platform
