// UTF-8 for tokenizers: strict decoding of a character, and replacement of invalid bytes. Decoding
// is strict, so that a stray lead byte never consumes the valid text after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::tokenizer {

inline constexpr uint32_t kInvalidCodepoint = 0xFFFFFFFF;
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Decoded {
  uint32_t cp = kInvalidCodepoint;  // kInvalidCodepoint when the bytes are not UTF-8
  uint32_t bytes = 1;               // consumed; for an invalid sequence, its maximal valid part
};

// Decodes the character at text[pos], pos < text.size(). Overlong forms, surrogates and values
// above U+10FFFF are invalid (Unicode standard, table 3-7).
[[nodiscard]] inline Decoded decode_utf8(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(pos);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {kInvalidCodepoint, 1};
  const uint32_t need = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  uint32_t cp = lead & (0x3Fu >> need);
  for (uint32_t i = 1; i <= need; ++i) {
    if (pos + i >= text.size()) return {kInvalidCodepoint, i};
    const uint8_t c = byte(pos + i);
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (c < low || c > high) return {kInvalidCodepoint, i};
    cp = (cp << 6) | (c & 0x3F);
  }
  return {cp, need + 1};
}

void append_utf8(uint32_t cp, std::string* out);

// True when `tail`, which is not a whole character, could become one with more bytes.
[[nodiscard]] bool is_unfinished_utf8(std::string_view tail);

[[nodiscard]] bool is_valid_utf8(std::string_view text);

// Appends `text`, with U+FFFD in place of each invalid byte (as in llama.cpp), or of each maximal
// part of a character (as in browsers).
enum class Replace { kEachByte, kEachPart };
void append_valid_utf8(std::string_view text, Replace replace, std::string* out);

}  // namespace sluice::tokenizer
