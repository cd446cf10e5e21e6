// The progress of `sluice pull`, on standard error.
#include "cli/pull_progress.h"

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "cli/cli.h"
#include "platform/console.h"

namespace sluice::cli {
namespace {

constexpr double kPrintMs = 250;

std::string time_of(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  char text[48];
  if (s >= 3600) {
    std::snprintf(text, sizeof text, "%lld h %lld min", s / 3600, s / 60 % 60);
  } else if (s >= 60) {
    std::snprintf(text, sizeof text, "%lld min %lld s", s / 60, s % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld s", s);
  }
  return text;
}

}  // namespace

std::string progress_line(uint64_t done, uint64_t size, double bytes_per_second) {
  std::string line = human_bytes(done) + " of " + human_bytes(size);
  if (bytes_per_second >= 1 && done < size) {
    line += ", " + human_bytes(static_cast<uint64_t>(bytes_per_second)) + "/s, " +
            time_of(static_cast<double>(size - done) / bytes_per_second) + " left";
  }
  return line;
}

PullProgress::PullProgress(uint64_t size, uint64_t missing)
    : size_(size), cached_(size - missing), start_ms_(monotonic_ms()) {}

void PullProgress::update(uint64_t fetched) {
  fetched_ = fetched;
  const double now = monotonic_ms();
  if (now - printed_ms_ < kPrintMs || !platform::is_terminal(platform::Stream::kErrors)) return;
  print(now);
}

void PullProgress::end_file() {
  earlier_ += fetched_;
  fetched_ = 0;
}

void PullProgress::finish() {
  if (!shown_) return;
  print(monotonic_ms());
  std::fputc('\n', stderr);
}

void PullProgress::print(double now) {
  printed_ms_ = now;
  shown_ = true;
  const auto fetched = static_cast<double>(earlier_ + fetched_);
  const uint64_t done = std::min(size_, cached_ + earlier_ + fetched_);
  const std::string line = progress_line(done, size_, 1000 * fetched / (now - start_ms_ + 1));
  std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
  std::fflush(stderr);
}

}  // namespace sluice::cli
