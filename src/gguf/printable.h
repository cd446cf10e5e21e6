// Names from a file as error messages may show them: short, and without control characters, which
// would reach the terminal.
#pragma once

#include <string>
#include <string_view>

namespace sluice::gguf {

inline std::string printable(std::string_view text, size_t limit = 80) {
  std::string out(text.substr(0, limit));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

}  // namespace sluice::gguf
