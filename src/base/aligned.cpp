// Where the memory comes from. Natively large buffers are mappings of their own: what a smaller
// budget frees is the system's again at once, whatever else lives in the process's heap. Weights
// are read from end to end for every token, and in 4 kB pages the address translation alone takes a
// third of the bandwidth, so large buffers ask for huge pages where the system grants them.
// Sanitizers see only what malloc gives; under them everything is its.
#include "base/aligned.h"

#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_MAPS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define SLUICE_MAPS 0
#endif
#endif
#if !defined(SLUICE_MAPS) && defined(__linux__) && !defined(__EMSCRIPTEN__)
#define SLUICE_MAPS 1
#include <sys/mman.h>
#endif

namespace sluice {

#if SLUICE_MAPS
namespace {

constexpr size_t kLeastMapped = 256 << 10;
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2 << 20;

constexpr size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Whole pages, from the start of a huge one where there is room for one: the mapping is made longer
// and its ends are given back.
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

}  // namespace

void* reserve(size_t bytes) {
  return bytes < kLeastMapped ? std::aligned_alloc(kAlignment, round_up_to_line(bytes))
                              : map(bytes);
}

void release(void* memory, size_t bytes) {
  if (bytes < kLeastMapped) {
    std::free(memory);
  } else {
    munmap(memory, round_up(bytes, kPage));
  }
}
#else
void* reserve(size_t bytes) {
  return std::aligned_alloc(kAlignment, round_up_to_line(bytes));
}

void release(void* memory, size_t) {
  std::free(memory);
}
#endif

}  // namespace sluice
