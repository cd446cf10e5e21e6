// Progress on a terminal.
#include "cli/progress.h"

#include <cstdio>

#include "base/clock.h"
#include "cli/cli.h"
#include "platform/console.h"

namespace sluice::cli {
namespace {

constexpr double kPrintMs = 250;
constexpr uint64_t kShares = 1u << 20;  // steps of update_share()

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

std::string amount_of(Unit unit, uint64_t amount) {
  return unit == Unit::kBytes ? human_bytes(amount) : std::to_string(amount);
}

}  // namespace

std::string progress_line(Unit unit, uint64_t done, uint64_t total, double per_second) {
  std::string line;
  if (unit == Unit::kPercent) {
    line = std::to_string(total == 0 ? 0 : 100 * done / total) + " %";
  } else {
    line = amount_of(unit, done) + " of " + amount_of(unit, total);
  }
  const char* const name = unit == Unit::kTokens ? " tokens" : "";
  line += name;
  if (per_second < 1 || done >= total) return line;
  if (unit != Unit::kPercent) {
    line += ", " + amount_of(unit, static_cast<uint64_t>(per_second)) + name + "/s";
  }
  return line + ", " + time_of(static_cast<double>(total - done) / per_second) + " left";
}

Progress::Progress(const char* what, Unit unit, bool quiet)
    : what_(what),
      unit_(unit),
      shown_(!quiet && platform::is_terminal(platform::Stream::kErrors)) {}

Progress::~Progress() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Progress::update(uint64_t done, uint64_t total) {
  if (!shown_) return;
  const double now = monotonic_ms();
  if (!begun_) {
    begun_ = true;
    start_ms_ = now;
    first_ = done;
  }
  if (now - printed_ms_ < kPrintMs) return;
  printed_ms_ = now;
  drawn_ = true;
  const double rate = 1000 * static_cast<double>(done - first_) / (now - start_ms_ + 1);
  std::fprintf(stderr, "\r\x1b[K%s: %s", what_, progress_line(unit_, done, total, rate).c_str());
  std::fflush(stderr);
}

void Progress::update_share(double share) {
  update(static_cast<uint64_t>(share * static_cast<double>(kShares)), kShares);
}

}  // namespace sluice::cli
