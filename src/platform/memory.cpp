// Every token reads all weights, and with 4 kB pages address translation alone takes a third of the
// bandwidth. Large buffers therefore ask for huge pages where the system has them. Sanitizers track
// only malloc, so under them all memory comes from malloc.
#include "platform/memory.h"

#include <cstdint>
#include <cstdlib>
#include <limits>

#if defined(_WIN32)
#include <malloc.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_MAPS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define SLUICE_MAPS 0
#endif
#endif
#if defined(__linux__) && !defined(__EMSCRIPTEN__)
#include <sys/mman.h>
#include <unistd.h>
#if !defined(SLUICE_MAPS)
#define SLUICE_MAPS 1
#endif
#endif

namespace sluice::platform {
namespace {

constexpr size_t kLine = 64;

constexpr size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

void* allocate(size_t bytes) {
#if defined(_WIN32)
  return _aligned_malloc(bytes, kLine);
#else
  return std::aligned_alloc(kLine, round_up(bytes, kLine));
#endif
}

void deallocate(void* memory) {
#if defined(_WIN32)
  _aligned_free(memory);
#else
  std::free(memory);
#endif
}

#if SLUICE_MAPS
constexpr size_t kMinMapped = 256 << 10;
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2 << 20;

// Maps whole pages, aligned to a huge page if the buffer is large enough: maps more than needed and
// unmaps both ends.
void* map(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() - 2 * kHugePage) return nullptr;
  const size_t size = round_up(bytes, kPage);
  const size_t slack = bytes < kHugePage ? 0 : kHugePage;
  void* mapping =
      mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  if (slack == 0) return mapping;
  std::byte* begin = static_cast<std::byte*>(mapping);
  const size_t skipped =
      round_up(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  if (skipped > 0) munmap(begin, skipped);
  if (skipped < slack) munmap(begin + skipped + size, slack - skipped);
  madvise(begin + skipped, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return begin + skipped;
}
#endif

}  // namespace

#if SLUICE_MAPS
void* reserve(size_t bytes) {
  return bytes < kMinMapped ? allocate(bytes) : map(bytes);
}

void release(void* memory, size_t bytes) {
  if (bytes < kMinMapped) {
    deallocate(memory);
  } else {
    munmap(memory, round_up(bytes, kPage));
  }
}
#else
void* reserve(size_t bytes) {
  return allocate(bytes);
}

void release(void* memory, size_t) {
  deallocate(memory);
}
#endif

void discard([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(__linux__) && !defined(__EMSCRIPTEN__)
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t first = (address + page - 1) / page * page;
  const uintptr_t end = (address + bytes) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
#endif
}

}  // namespace sluice::platform
