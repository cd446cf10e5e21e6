// Compares both ways on the file itself: as many threads as there will be buffers read places all
// over the file, which a page cache that is too small would not hold either.
#include "io/direct_io_native.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "base/clock.h"
#include "platform/available_memory.h"
#include "platform/file.h"

namespace sluice::io {
namespace {

constexpr uint64_t kProbe = 1 << 20;  // bytes of a read
constexpr size_t kProbes = 16;        // reads
constexpr double kMaxProbeMs = 200;   // in each of the two ways
constexpr double kMargin = 1.1;       // how much faster the page cache must be

uint64_t buffer_bytes() {
  return DirectBuffers::kBytes + 2 * platform::kDirectBlock;
}

// Offsets of probes, each in its part of the file.
std::vector<uint64_t> probes_of(uint64_t size) {
  std::vector<uint64_t> out;
  std::mt19937_64 random(1);
  const uint64_t part = size / kProbes / platform::kDirectBlock * platform::kDirectBlock;
  if (part < 2 * kProbe) return out;
  for (uint64_t i = 0; i < kProbes; ++i) {
    const uint64_t skip = random() % (part - kProbe) / platform::kDirectBlock;
    out.push_back(i * part + skip * platform::kDirectBlock);
  }
  return out;
}

// Bytes per millisecond of the reads that `n` threads begin within the time limit; 0 on failure.
template <typename Read>
double rate_of(std::span<const uint64_t> offsets, size_t n, Read&& read) {
  const double start = monotonic_ms();
  std::atomic<size_t> next{0}, done{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    std::vector<uint8_t> memory(kProbe + platform::kDirectBlock);
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    const size_t skip =
        (platform::kDirectBlock - address % platform::kDirectBlock) % platform::kDirectBlock;
    while (!failed && monotonic_ms() - start < kMaxProbeMs) {
      const size_t i = next++;
      if (i >= offsets.size()) return;
      if (read(offsets[i], memory.data() + skip) != static_cast<int64_t>(kProbe)) failed = true;
      ++done;
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < n; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failed) return 0;
  return static_cast<double>(done * kProbe) / std::max(1e-3, monotonic_ms() - start);
}

// Whether reads of this file are faster without the page cache.
bool pays(const std::string& path, uint64_t size, size_t n) {
  const platform::File cached = platform::File::open(path, platform::Access::kRead);
  const platform::File direct = cached.open_direct();
  const std::vector<uint64_t> offsets = probes_of(size);
  if (!cached.valid() || !direct.valid() || offsets.empty()) return false;
  const double with = rate_of(
      offsets, n, [&](uint64_t at, uint8_t* out) { return direct.read_direct(at, out, kProbe); });
  if (with <= 0) return false;
  for (const uint64_t at : offsets) cached.drop_cached(at, kProbe);
  for (const uint64_t at : offsets) cached.will_need(at, kProbe);
  const double without = rate_of(
      offsets, n, [&](uint64_t at, uint8_t* out) { return cached.read_at(at, out, kProbe); });
  for (const uint64_t at : offsets) cached.drop_cached(at, kProbe);
  return without < kMargin * with;
}

}  // namespace

uint64_t DirectBuffers::memory(size_t n) {
  return n * (buffer_bytes() + platform::kDirectBlock);
}

Result<std::shared_ptr<DirectBuffers>> DirectBuffers::make(size_t n) {
  auto out = std::make_shared<DirectBuffers>();
  out->memory_.resize(n);
  for (AlignedBuffer& memory : out->memory_) {
    SLUICE_RETURN_IF_ERROR(memory.allocate(buffer_bytes() + platform::kDirectBlock));
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    const size_t over = address % platform::kDirectBlock;
    out->free_.push_back(memory.as<uint8_t>() + (over == 0 ? 0 : platform::kDirectBlock - over));
  }
  return out;
}

DirectBuffers::Use::Use(DirectBuffers& buffers) : buffers_(buffers) {
  std::unique_lock<std::mutex> lock(buffers.mutex_);
  buffers.changed_.wait(lock, [&buffers] { return !buffers.free_.empty(); });
  data_ = buffers.free_.back();
  buffers.free_.pop_back();
}

DirectBuffers::Use::~Use() {
  const std::lock_guard<std::mutex> lock(buffers_.mutex_);
  buffers_.free_.push_back(data_);
  buffers_.changed_.notify_one();
}

bool choose_direct_io(std::span<const std::string> files, size_t buffers,
                      const OpenOptions& options) {
  if (options.direct_io != DirectIo::kAuto) return options.direct_io == DirectIo::kOn;
  uint64_t total = 0, most = 0;
  const std::string* largest = nullptr;
  for (const std::string& path : files) {
    const platform::File file = platform::File::open(path, platform::Access::kRead);
    platform::FileInfo info;
    if (!file.valid() || !file.info(&info)) continue;
    total += info.size;
    if (info.size > most) largest = &path;
    most = std::max(most, info.size);
  }
  const uint64_t available = platform::available_memory();
  const bool fits = available == 0 || total <= available;
  if (largest == nullptr || (fits && !options.no_page_cache)) return false;
  return pays(*largest, most, buffers);
}

}  // namespace sluice::io
