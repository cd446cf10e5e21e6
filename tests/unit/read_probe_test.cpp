// The choice between direct I/O and the page cache, on a scripted device with a scripted clock. The
// device remembers what it has read, as a page cache or a host does.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "io/read_probe_native.h"
#include "platform/file.h"

namespace sluice::io {
namespace {

constexpr uint64_t kSize = 1 << 30;

// Milliseconds of one read, of a place that nothing holds unless it says otherwise.
struct Costs {
  double direct = 2, cached = 2;
  double held_by_page_cache = 0.05, held_by_host = 0.2;
  double later = 0;         // more with every read, a fraction
  size_t slow_every = 0;    // of the direct reads, every so many takes 80 ms more
  bool all_cached = false;  // the page cache holds the file before
  size_t fail_direct = SIZE_MAX, fail_cached = SIZE_MAX;  // which read of this way fails
};

class Device {
 public:
  explicit Device(Costs costs) : costs_(costs) {}

  [[nodiscard]] bool pays(uint64_t size = kSize, size_t threads = 1, uint64_t seed = 1) {
    return direct_io_pays(size, threads, seed,
                          {.direct = [this](uint64_t at, uint8_t* out) { return direct(at, out); },
                           .cached = [this](uint64_t at, uint8_t* out) { return cached(at, out); },
                           .evict = [this](uint64_t at) { evict(at); },
                           .clock = [this] { return now(); }});
  }
  std::map<uint64_t, int> places;  // reads of each
  std::vector<uint64_t> direct_places, cached_places;
  size_t evictions = 0;

 private:
  double now() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ms_;
  }
  bool direct(uint64_t at, uint8_t* out) {
    const std::lock_guard<std::mutex> lock(mutex_);
    note(at, out);
    direct_places.push_back(at);
    spend(host_.insert(at).second ? costs_.direct : costs_.held_by_host);
    const size_t every = costs_.slow_every;
    if (every > 0 && direct_places.size() % every == 0) ms_ += 80;
    return direct_places.size() != costs_.fail_direct;
  }
  bool cached(uint64_t at, uint8_t* out) {
    load(at);
    const std::lock_guard<std::mutex> lock(mutex_);
    note(at, out);
    cached_places.push_back(at);
    ms_ += costs_.held_by_page_cache;
    return cached_places.size() != costs_.fail_cached;
  }
  void load(uint64_t at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (costs_.all_cached ? evicted_.erase(at) == 0 : !page_cache_.insert(at).second) return;
    spend(host_.insert(at).second ? costs_.cached : costs_.held_by_host);
  }
  void evict(uint64_t at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    page_cache_.erase(at);
    evicted_.insert(at);
    ++evictions;
  }
  void note(uint64_t at, const uint8_t* out) {
    EXPECT_EQ(at % platform::kDirectBlock, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(out) % platform::kDirectBlock, 0u);
    EXPECT_LE(at + kProbeRead, kSize);
    ++places[at];
  }
  void spend(double ms) { ms_ += ms * (1 + costs_.later * static_cast<double>(spent_++)); }

  const Costs costs_;
  std::mutex mutex_;
  double ms_ = 0;
  size_t spent_ = 0;
  std::set<uint64_t> page_cache_, evicted_, host_;
};

bool pays(const Costs& costs) {
  return Device(costs).pays();
}

TEST(ReadProbe, TheFasterWayWins) {
  EXPECT_TRUE(pays({.direct = 1, .cached = 2}));
  EXPECT_TRUE(pays({.direct = 2, .cached = 1.4}));  // within the margin
  EXPECT_FALSE(pays({.direct = 2, .cached = 1.2}));
  EXPECT_FALSE(pays({.direct = 2, .cached = 1}));
}

TEST(ReadProbe, NoWayProfitsFromTheOther) {
  Device device({.direct = 2, .cached = 2});
  EXPECT_TRUE(device.pays());
  EXPECT_EQ(device.direct_places.size(), 16u);
  EXPECT_EQ(device.cached_places.size(), 16u);
  for (const auto& [place, reads] : device.places) EXPECT_EQ(reads, 1) << place;
  // No place overlaps the next one, and they lie all over the file.
  uint64_t end = 0;
  for (const auto& [place, reads] : device.places) {
    EXPECT_GE(place, end);
    end = place + kProbeRead;
  }
  EXPECT_GT(end, kSize / 33 * 32 - kSize / 32);
  EXPECT_LT(device.places.begin()->first, kSize / 32);
}

TEST(ReadProbe, WhatWasCachedBeforeDoesNotCount) {
  Device device({.direct = 2, .cached = 2, .all_cached = true});
  EXPECT_TRUE(device.pays());
  EXPECT_EQ(device.evictions, 32u);  // before and after
}

TEST(ReadProbe, ADeviceThatSlowsDownChangesNothing) {
  for (const double later : {0.0, 0.05, 0.2}) {
    EXPECT_TRUE(pays({.direct = 2, .cached = 2.0, .later = later})) << later;
    EXPECT_FALSE(pays({.direct = 2, .cached = 1.2, .later = later})) << later;
  }
}

TEST(ReadProbe, SingleSlowReadsChangeNothing) {
  EXPECT_TRUE(pays({.direct = 1, .cached = 2, .slow_every = 8}));
  EXPECT_FALSE(pays({.direct = 2, .cached = 1, .slow_every = 8}));
}

TEST(ReadProbe, ASlowDeviceIsReadForALimitedTime) {
  Device device({.direct = 60, .cached = 35});
  EXPECT_FALSE(device.pays());
  EXPECT_EQ(device.direct_places.size(), 4u);  // two in each turn
  Device hung({.direct = 1000, .cached = 1500});
  EXPECT_TRUE(hung.pays());
  EXPECT_EQ(hung.direct_places.size(), 2u);
  EXPECT_EQ(hung.cached_places.size(), 2u);
}

TEST(ReadProbe, FailedReadsChooseThePageCache) {
  EXPECT_FALSE(pays({.direct = 1, .cached = 2, .fail_direct = 1}));
  EXPECT_FALSE(pays({.direct = 1, .cached = 2, .fail_direct = 16}));
  EXPECT_FALSE(pays({.direct = 1, .cached = 2, .fail_cached = 3}));
}

TEST(ReadProbe, SmallFilesAreNotRead) {
  for (const uint64_t size : {uint64_t{0}, kProbeRead, 64 * kProbeRead - 1}) {
    Device device({.direct = 1, .cached = 2});
    EXPECT_FALSE(device.pays(size));
    EXPECT_TRUE(device.places.empty());
    EXPECT_EQ(device.evictions, 0u);
  }
  EXPECT_TRUE(Device({.direct = 1, .cached = 2}).pays(64 * kProbeRead));
}

TEST(ReadProbe, ThreadsReadEachPlaceOnce) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Device device({.direct = 1, .cached = 2});
    EXPECT_TRUE(device.pays(kSize, 4, seed));
    EXPECT_EQ(device.places.size(), 32u) << seed;
    for (const auto& [place, reads] : device.places) EXPECT_EQ(reads, 1) << place;
  }
}

TEST(ReadProbe, EachSeedHasOtherPlaces) {
  Device first({}), again({}), other({});
  EXPECT_EQ(first.pays(), again.pays());
  EXPECT_EQ(first.direct_places, again.direct_places);
  EXPECT_TRUE(other.pays(kSize, 1, 2));
  EXPECT_NE(first.direct_places, other.direct_places);
}

}  // namespace
}  // namespace sluice::io
