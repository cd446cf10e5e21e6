// Character classes of Unicode for pre-tokenizers. The tables are generated; see
// unicode_tables.mjs.
#pragma once

#include <cstdint>

namespace sluice::tokenizer {

enum class CharClass : uint8_t {
  kOther = 0,  // controls, format characters, private use, unassigned
  kLetter = 1,
  kNumber = 2,
  kPunctuation = 3,
  kMark = 4,
  kSymbol = 5,
  kSpace = 6,  // the property White_Space
  kEnd = 15,   // the end of the text; not in the tables
};

struct CodePoints {
  uint32_t first, last;
};

inline constexpr uint32_t kUnicodeLeafBits = 4;
inline constexpr uint32_t kUnicodeMiddleBits = 5;
extern const uint8_t kUnicodeRoot[2176];
extern const uint16_t kUnicodeMiddle[3168];
extern const uint8_t kUnicodeLeaves[4312];

// Class of a code point below 0x110000.
#ifdef SLUICE_HOST_CHAR_CLASS  // JavaScript's (bindings/chat/library.cpp), without the tables
[[nodiscard]] CharClass char_class(uint32_t cp);
#else
[[nodiscard]] inline CharClass char_class(uint32_t cp) {
  const uint32_t middle =
      static_cast<uint32_t>(kUnicodeRoot[cp >> (kUnicodeLeafBits + kUnicodeMiddleBits)])
          << kUnicodeMiddleBits |
      (cp >> kUnicodeLeafBits & ((1u << kUnicodeMiddleBits) - 1));
  const uint32_t leaf = static_cast<uint32_t>(kUnicodeMiddle[middle]) << kUnicodeLeafBits |
                        (cp & ((1u << kUnicodeLeafBits) - 1));
  return static_cast<CharClass>(kUnicodeLeaves[leaf / 2] >> (leaf % 2 * 4) & 15);
}
#endif

}  // namespace sluice::tokenizer
