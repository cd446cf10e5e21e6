// Memory under account: every large allocation of the engine has a name, is 64-byte aligned, may
// fail without ending the process, and is counted against the budget. Allocations are separate
// blocks rather than one arena, so that pinned weights can be given back one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sluice {

inline constexpr size_t kAlignment = 64;

// An owned, aligned, uninitialised block. Null when empty.
class Block {
 public:
  Block() = default;
  ~Block() { reset(); }
  Block(Block&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Errors: kOutOfMemory, naming `what`.
  [[nodiscard]] Status allocate(size_t bytes, const char* what);
  void reset();

  [[nodiscard]] uint8_t* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

[[nodiscard]] constexpr uint64_t round_up(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace sluice
