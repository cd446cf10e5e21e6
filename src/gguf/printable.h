// Makes names and strings from a file safe to show in messages and terminals: short, valid UTF-8,
// without control characters (C0, DEL, and C1, whose U+009B begins an escape sequence too). Each
// invalid byte or control character becomes a question mark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::gguf {

// The length of the UTF-8 sequence (RFC 3629) at the start of `text`; 0 if it is invalid.
inline size_t utf8_length(std::string_view text) {
  const auto byte = [&text](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return text.empty() ? 0 : 1;
  const size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const uint8_t least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;  // no overlong forms
  const uint8_t most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;   // no surrogates
  if (byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < n; i++) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return n;
}

// At most `limit` bytes, cut between characters.
inline std::string printable(std::string_view text, size_t limit = 80) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = utf8_length(text);
    const size_t n = valid > 0 ? valid : 1;
    const auto last = static_cast<uint8_t>(text[n - 1]);
    const bool control = (n == 1 && (text[0] < 0x20 || text[0] == 0x7f)) ||
                         (n == 2 && text[0] == '\xc2' && last < 0xa0);
    const bool shown = valid > 0 && !control;
    if (out.size() + (shown ? n : 1) > limit) break;
    if (shown) {
      out += text.substr(0, n);
    } else {
      out += '?';
    }
    text.remove_prefix(n);
  }
  return out;
}

}  // namespace sluice::gguf
