// The scanners of pre-tokenizers, one for each published regular expression, and the decoding of
// characters that they share.
#pragma once

#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"

namespace sluice::tokenizer {

struct Char {
  uint32_t cp = 0;
  CharClass cls = CharClass::kEnd;
  uint32_t bytes = 0;

  [[nodiscard]] bool is_letter() const { return cls == CharClass::kLetter; }
  [[nodiscard]] bool is_number() const { return cls == CharClass::kNumber; }
  [[nodiscard]] bool is_space() const { return cls == CharClass::kSpace; }
  [[nodiscard]] bool is_newline() const { return cp == '\n' || cp == '\r'; }
  [[nodiscard]] bool is_end() const { return cls == CharClass::kEnd; }
};

// The character at `pos` of valid UTF-8; class kEnd at or beyond the end.
[[nodiscard]] inline Char char_at(std::string_view text, size_t pos) {
  if (pos >= text.size()) return {};
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(pos);
  if (lead < 0x80) return {lead, char_class(lead), 1};
  uint32_t cp;
  uint32_t bytes;
  if (lead < 0xE0) {
    cp = (lead & 0x1F) << 6 | (byte(pos + 1) & 0x3F);
    bytes = 2;
  } else if (lead < 0xF0) {
    cp = (lead & 0x0F) << 12 | (byte(pos + 1) & 0x3F) << 6 | (byte(pos + 2) & 0x3F);
    bytes = 3;
  } else {
    cp = (lead & 0x07) << 18 | (byte(pos + 1) & 0x3F) << 12 | (byte(pos + 2) & 0x3F) << 6 |
         (byte(pos + 3) & 0x3F);
    bytes = 4;
  }
  return {cp, char_class(cp), bytes};
}

// End of the longest run from `pos` whose characters satisfy the predicate.
template <typename Predicate>
[[nodiscard]] size_t run_end(std::string_view text, size_t pos, Predicate&& holds) {
  for (;;) {
    const Char c = char_at(text, pos);
    if (c.is_end() || !holds(c)) return pos;
    pos += c.bytes;
  }
}

// Matches the longest run of characters that satisfy the predicate.
template <typename Predicate>
[[nodiscard]] Piece scan_run(std::string_view text, size_t pos, Predicate&& holds) {
  const size_t end = run_end(text, pos, holds);
  if (end > pos) return {end, true};
  return {pos + char_at(text, pos).bytes, false};
}

// The rules of the large families, in scanners.cpp.
[[nodiscard]] Piece scan_gpt2(std::string_view text, size_t pos);
[[nodiscard]] Piece scan_llama3(std::string_view text, size_t pos);
[[nodiscard]] Piece scan_qwen2(std::string_view text, size_t pos);
[[nodiscard]] Piece scan_qwen35(std::string_view text, size_t pos);
[[nodiscard]] Piece scan_minicpm5(std::string_view text, size_t pos);
[[nodiscard]] Piece scan_seed_coder(std::string_view text, size_t pos);
[[nodiscard]] Piece scan_tekken(std::string_view text, size_t pos);
[[nodiscard]] Piece scan_gpt4o(std::string_view text, size_t pos);
[[nodiscard]] Piece scan_deepseek_v3(std::string_view text, size_t pos);
// The last steps of most rules: \s*[\r\n]+ if `newlines`, then \s+(?!\S), then \s+.
[[nodiscard]] Piece scan_space(std::string_view text, size_t pos, bool newlines);

}  // namespace sluice::tokenizer
