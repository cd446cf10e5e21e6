// The line that `sluice pull` rewrites on a terminal: bytes, rate and time left.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::cli {

// "12.0 MB of 200.0 MB, 3.1 MB/s, 60 s left"
[[nodiscard]] std::string progress_line(uint64_t done, uint64_t size, double bytes_per_second);

class PullProgress {
 public:
  // `missing` of the `size` bytes will be fetched.
  PullProgress(uint64_t size, uint64_t missing);
  // `fetched` bytes of the current file have arrived. Prints at most four times a second.
  void update(uint64_t fetched);
  void end_file();
  void finish();

 private:
  void print(double now);
  const uint64_t size_, cached_;
  const double start_ms_;
  double printed_ms_ = 0;
  uint64_t earlier_ = 0, fetched_ = 0;  // in the files before, and in this one
  bool shown_ = false;
};

}  // namespace sluice::cli
