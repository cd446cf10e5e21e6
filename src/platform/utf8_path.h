// Converts std::filesystem paths from and to UTF-8. The standard library would read plain strings
// in the system's encoding.
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
