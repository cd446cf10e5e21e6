// Paths of the standard library from UTF-8 and back: plain strings it takes in the system's own
// encoding.
#pragma once

#include <filesystem>
#include <string>

namespace sluice::platform {

[[nodiscard]] inline std::filesystem::path to_path(const std::string& utf8) {
  return std::u8string(utf8.begin(), utf8.end());
}

[[nodiscard]] inline std::string to_utf8(const std::filesystem::path& path) {
  const std::u8string text = path.u8string();
  return {text.begin(), text.end()};
}

}  // namespace sluice::platform
