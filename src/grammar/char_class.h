// A set of Unicode code points as sorted, disjoint ranges, and its UTF-8 encoding. Surrogates are
// never included.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::grammar {

inline constexpr uint32_t kMaxChar = 0x10FFFF;

struct CharRange {
  uint32_t first, last;
  bool operator==(const CharRange&) const = default;
};

class CharClass {
 public:
  CharClass() = default;
  CharClass(std::initializer_list<CharRange> ranges);
  [[nodiscard]] static CharClass all();

  void add(uint32_t first, uint32_t last);
  void add(const CharClass& other);
  [[nodiscard]] CharClass inverse() const;
  [[nodiscard]] CharClass minus(const CharClass& other) const;
  [[nodiscard]] bool contains(uint32_t c) const;
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] const std::vector<CharRange>& ranges() const { return ranges_; }
  bool operator==(const CharClass&) const = default;

 private:
  void settle();
  std::vector<CharRange> ranges_;
};

// A sequence of byte ranges that encodes some of the characters.
struct ByteRun {
  int length;
  uint8_t lo[4], hi[4];
};
// Runs that together encode exactly the set, in ascending order.
[[nodiscard]] std::vector<ByteRun> utf8_runs(const CharClass& set);

// Appends a code point, which must be valid.
template <typename String>
void append_utf8(uint32_t c, String* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace sluice::grammar
