// Each way reads two groups of places, all over the file, in the order direct, cached, cached,
// direct. So neither has the later turn on average. The median read counts, because a busy machine
// delays single reads by much more than they take. A page cache that is too small for the file
// would not hold such places either.
#include "io/read_probe_native.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "platform/file.h"

namespace sluice::io {
namespace {

constexpr size_t kTurns = 4;        // two of each way
constexpr size_t kReads = 8;        // in a turn
constexpr double kMaxTurnMs = 100;  // a turn begins no read after that
// How much faster the page cache must be: the probes do not show what it costs the compute threads,
// which allocate, copy and reclaim its pages.
constexpr double kMargin = 1.5;

using Places = std::array<uint64_t, kReads>;

// Of each turn, each place in its own part of the file; turns alternate. False: the file is too
// small.
bool choose_places(uint64_t size, uint64_t seed, std::array<Places, kTurns>* out) {
  constexpr uint64_t kBlock = platform::kDirectBlock;
  const uint64_t part = size / (kTurns * kReads) / kBlock * kBlock;
  if (part < 2 * kProbeRead) return false;
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < kTurns * kReads; ++i) {
    const uint64_t skip = random() % (part - kProbeRead) / kBlock * kBlock;
    (*out)[i % kTurns][i / kTurns] = i * part + skip;
  }
  return true;
}

struct Measured {
  std::vector<double> ms;  // of each read
  bool failed = false;
  [[nodiscard]] double median() {
    std::ranges::sort(ms);
    return (ms[(ms.size() - 1) / 2] + ms[ms.size() / 2]) / 2;
  }
};

// Adds a turn: `threads` threads read its places.
void read_places(const Places& places, size_t threads, bool direct, const ProbeReads& reads,
                 Measured* total) {
  const double start = reads.clock();
  std::array<double, kReads> ms{};
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    std::vector<uint8_t> memory(kProbeRead + platform::kDirectBlock);
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    const size_t over = address % platform::kDirectBlock;
    uint8_t* out = memory.data() + (over == 0 ? 0 : platform::kDirectBlock - over);
    for (size_t i = next++; i < places.size() && !failed; i = next++) {
      const double began = reads.clock();
      if (i >= threads && began - start >= kMaxTurnMs) return;
      if (!(direct ? reads.direct : reads.cached)(places[i], out)) failed = true;
      ms[i] = std::max(1e-3, reads.clock() - began);
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  std::ranges::copy_if(ms, std::back_inserter(total->ms), [](double took) { return took > 0; });
  total->failed |= failed;
}

}  // namespace

bool direct_io_pays(uint64_t size, size_t threads, uint64_t seed, const ProbeReads& reads) {
  std::array<Places, kTurns> places;
  if (!choose_places(size, seed, &places)) return false;
  constexpr std::array<bool, kTurns> kDirect = {true, false, false, true};
  const auto evict = [&] {
    for (size_t turn = 0; turn < kTurns; ++turn) {
      if (!kDirect[turn]) std::ranges::for_each(places[turn], reads.evict);
    }
  };
  evict();
  Measured direct, cached;
  for (size_t turn = 0; turn < kTurns; ++turn) {
    Measured& way = kDirect[turn] ? direct : cached;
    read_places(places[turn], threads, kDirect[turn], reads, &way);
    if (way.failed) return false;
  }
  evict();
  return direct.median() < kMargin * cached.median();
}

}  // namespace sluice::io
