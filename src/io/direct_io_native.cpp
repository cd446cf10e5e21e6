// Compares both ways on the file itself, with as many reads in flight as there will be buffers.
#include "io/direct_io_native.h"

#include <algorithm>

#include "base/clock.h"
#include "base/random.h"
#include "io/read_probe_native.h"
#include "platform/available_memory.h"
#include "platform/file.h"

namespace sluice::io {
namespace {

uint64_t buffer_bytes() {
  return DirectBuffers::kBytes + 2 * platform::kDirectBlock;
}

// Whether reads of this file are faster without the page cache.
bool pays(const std::string& path, uint64_t size, size_t n) {
  const platform::File cached = platform::File::open(path, platform::Access::kRead);
  const platform::File direct = cached.open_direct();
  if (!cached.valid() || !direct.valid()) return false;
  // Linux keeps a run of pages that it has read ahead unless the range contains all of it.
  constexpr uint64_t kRun = 2 << 20;
  const auto whole = static_cast<int64_t>(kProbeRead);
  ProbeReads reads;
  reads.direct = [&](uint64_t at, uint8_t* out) {
    return direct.read_direct(at, out, kProbeRead) == whole;
  };
  reads.cached = [&](uint64_t at, uint8_t* out) {
    cached.will_need(at, kProbeRead);
    return cached.read_at(at, out, kProbeRead) == whole;
  };
  reads.evict = [&](uint64_t at) {
    const uint64_t first = at - std::min(at, kRun);
    cached.drop_cached(first, at + kProbeRead + kRun - first);
  };
  reads.clock = monotonic_ms;
  // Other places each time: a device or a host may have kept those of an earlier load.
  return direct_io_pays(size, n, random_seed(), reads);
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
