// A 64-bit checksum over a stream of bytes, eight at a time. It detects damage and tells inputs
// apart; it is not cryptographic. The result does not depend on how the stream is split into calls.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace sluice {

class Hash64 {
 public:
  void add(std::span<const uint8_t> bytes) {
    size_t at = 0;
    for (; at < bytes.size() && held_ > 0; ++at) hold(bytes[at]);
    for (; at + 8 <= bytes.size(); at += 8) {
      uint64_t word;
      std::memcpy(&word, &bytes[at], 8);
      mix(word);
    }
    for (; at < bytes.size(); ++at) hold(bytes[at]);
    length_ += bytes.size();
  }
  void add(std::string_view text) {
    add({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  void add(uint64_t value) { add({reinterpret_cast<const uint8_t*>(&value), sizeof value}); }

  [[nodiscard]] uint64_t value() const {
    Hash64 end = *this;
    end.mix(partial_);
    end.mix(length_);
    return end.sum_;
  }

 private:
  void hold(uint8_t byte) {
    partial_ |= static_cast<uint64_t>(byte) << (8 * held_);
    if (++held_ == 8) {
      mix(partial_);
      partial_ = 0;
      held_ = 0;
    }
  }
  void mix(uint64_t word) {
    sum_ = (sum_ ^ word) * 0x9e3779b97f4a7c15ull;
    sum_ ^= sum_ >> 32;
  }
  uint64_t sum_ = 0x243f6a8885a308d3ull, partial_ = 0, length_ = 0;
  uint32_t held_ = 0;
};

}  // namespace sluice
