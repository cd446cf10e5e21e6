// Makes text from files and servers safe to show in messages. Control characters would reach the
// terminal, where they can move the cursor, set the title or inject input.
#pragma once

#include <cstddef>
#include <span>

namespace sluice {

// Replaces control characters by '?': C0, DEL, and C1 in their UTF-8 encoding.
inline void hide_controls(std::span<char> text) {
  for (size_t i = 0; i < text.size(); i++) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte < 0x20 || byte == 0x7f) text[i] = '?';
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) text[i] = text[i + 1] = '?';
  }
}

}  // namespace sluice
