// The monotonic clock, for statistics and rates. One function hides how a target tells the time.
// Native builds use steady_clock. In the browser, Emscripten's libc maps it to performance.now,
// which browsers round to 5 to 100 microseconds.
#pragma once

#include <chrono>

namespace sluice {

// Milliseconds since an unspecified start; never decreases.
[[nodiscard]] inline double monotonic_ms() {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  return Milliseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace sluice
