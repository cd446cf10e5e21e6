// Memory that grows by exactly what is asked for and may be refused, in which a file's first bytes
// stay where they are until more of them are wanted. (A vector would end the program when a
// browser's heap is full, and would take twice what it needs.)
#pragma once

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace sluice::open {

class Block {
 public:
  Block() = default;
  ~Block() { std::free(data_); }
  Block(Block&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // What is held stays at the front; the rest is uninitialised. False: there is no such memory, and
  // nothing changed.
  [[nodiscard]] bool resize(uint64_t bytes) {
    if (bytes > std::numeric_limits<size_t>::max()) return false;
    void* data = std::realloc(data_, bytes > 0 ? static_cast<size_t>(bytes) : 1);
    if (data == nullptr) return false;
    data_ = static_cast<uint8_t*>(data);
    size_ = static_cast<size_t>(bytes);
    return true;
  }

  [[nodiscard]] std::span<uint8_t> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(data_), size_};
  }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice::open
