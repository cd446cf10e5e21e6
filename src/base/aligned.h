// A buffer for kernels, aligned to a cache line. One object owns the memory and releases it.
// Allocation can fail, since a browser's heap has a hard maximum. It is therefore a function that
// returns a Status: a constructor could only abort.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/status.h"
#include "platform/memory.h"

namespace sluice {

inline constexpr size_t kAlignment = 64;

// Bytes rounded up to whole cache lines; `bytes` is at most 63 below the maximum of its type.
template <typename T>  // size_t, or uint64_t for a plan that may exceed it
[[nodiscard]] constexpr T round_up_to_line(T bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer() { platform::release(data_, size_); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    AlignedBuffer(std::move(other)).swap(*this);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // Allocates `bytes` of uninitialised memory at a multiple of 64. Releases the previous memory
  // first. Errors: kOutOfMemory; the buffer is then empty.
  [[nodiscard]] Status allocate(uint64_t bytes) {
    AlignedBuffer().swap(*this);
    if (bytes == 0) return {};
    if (bytes <= std::numeric_limits<size_t>::max() - kAlignment) {
      data_ = static_cast<std::byte*>(platform::reserve(static_cast<size_t>(bytes)));
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
