// Memory that kernels read and write: aligned to a cache line, owned by one object, released with
// it. Allocation can fail (a browser's heap has a hard maximum), so it is a named function that
// returns a Status, and never a constructor that could only abort.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>

#if defined(__linux__) && !defined(__EMSCRIPTEN__)
#include <sys/mman.h>
#endif

#include "base/status.h"

namespace sluice {

inline constexpr size_t kAlignment = 64;

// Bytes rounded up to whole cache lines; `bytes` is at most SIZE_MAX - 63.
[[nodiscard]] constexpr size_t round_up_to_line(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Memory for AlignedBuffer, to be freed with std::free; null when the platform refuses. Weights are
// read from end to end for every token, and in 4 kB pages the address translation alone takes a
// third of the bandwidth: large buffers ask for huge pages where the system grants them. Whole
// pages only: memory behind the end would count against nobody's budget.
[[nodiscard]] inline void* reserve(size_t bytes) {
#if defined(__linux__) && !defined(__EMSCRIPTEN__)
  constexpr size_t kHugePage = 2 << 20;
  if (bytes >= kHugePage && bytes <= std::numeric_limits<size_t>::max() - kHugePage) {
    const size_t pages = bytes / kHugePage * kHugePage;
    void* memory = std::aligned_alloc(kHugePage, pages == bytes ? bytes : pages + kHugePage);
    if (memory != nullptr) madvise(memory, pages, MADV_HUGEPAGE);
    return memory;
  }
#endif
  return std::aligned_alloc(kAlignment, round_up_to_line(bytes));
}

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer() { std::free(data_); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    AlignedBuffer(std::move(other)).swap(*this);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // `bytes` of uninitialised memory, at a multiple of 64; what was held before is released first.
  // Errors: kOutOfMemory, and the buffer is empty then.
  [[nodiscard]] Status allocate(uint64_t bytes) {
    AlignedBuffer().swap(*this);
    if (bytes == 0) return {};
    if (bytes <= std::numeric_limits<size_t>::max() - kAlignment) {
      data_ = static_cast<std::byte*>(reserve(static_cast<size_t>(bytes)));
    }
    if (data_ == nullptr) {
      return error(Code::kOutOfMemory, "the platform refused %llu bytes of memory",
                   static_cast<unsigned long long>(bytes));
    }
    size_ = static_cast<size_t>(bytes);
    return {};
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_);
  }

  void swap(AlignedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
