// The line that a long step rewrites on a terminal's standard error: what it does, how far it is,
// how fast, and the time left. Without a terminal, or with --quiet, nothing is printed.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::cli {

enum class Unit : uint8_t { kBytes, kTokens, kPercent };

// "12.0 MB of 200.0 MB, 3.1 MB/s, 60 s left"; of kPercent, "6 %, 60 s left".
[[nodiscard]] std::string progress_line(Unit unit, uint64_t done, uint64_t total,
                                        double per_second);

class Progress {
 public:
  // `what`: "loading". Must outlive the object.
  Progress(const char* what, Unit unit, bool quiet);
  // Removes the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` units of `total` are done. The first call sets where the rate is measured from. Prints
  // at most four times a second. Not thread-safe.
  void update(uint64_t done, uint64_t total);
  // The same for kPercent: `share` is 0 to 1.
  void update_share(double share);

 private:
  const char* const what_;
  const Unit unit_;
  const bool shown_;
  bool begun_ = false, drawn_ = false;
  double start_ms_ = 0, printed_ms_ = 0;
  uint64_t first_ = 0;
};

}  // namespace sluice::cli
