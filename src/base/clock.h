// The monotonic clock, for statistics and rates. One function, so that no room depends on how a
// target tells the time: steady_clock natively, and through Emscripten's libc the browser's
// performance.now (which browsers round to 5 to 100 microseconds).
#pragma once

#include <chrono>

namespace sluice {

// Milliseconds since an unspecified start; never goes back.
[[nodiscard]] inline double monotonic_ms() {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  return Milliseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace sluice
