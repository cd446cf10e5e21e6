// Names from a file as error messages may show them: short, and without control characters, which
// would reach the terminal.
#pragma once

#include <string>
#include <string_view>

#include "base/printable.h"

namespace sluice::gguf {

inline std::string printable(std::string_view text, size_t limit = 80) {
  std::string out(text.substr(0, limit));
  hide_controls(out);
  return out;
}

}  // namespace sluice::gguf
