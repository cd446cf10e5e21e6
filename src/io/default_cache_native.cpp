// Where the model cache is.
#include "io/default_cache_native.h"

#include "base/byte_size.h"

namespace sluice::io {

std::string cache_directory(const std::string& given, platform::System system,
                            const std::function<std::string(const char*)>& variable) {
  for (const std::string& chosen : {given, variable("SLUICE_CACHE")}) {
    if (!chosen.empty()) return chosen == "none" ? "" : chosen;
  }
  const auto below = [&](const char* name, const char* path) {
    const std::string root = variable(name);
    return root.empty() ? "" : root + path;
  };
  if (system == platform::System::kWindows) return below("LOCALAPPDATA", "\\sluice\\cache");
  if (system == platform::System::kMac) return below("HOME", "/Library/Caches/sluice");
  // XDG: a path that is not absolute is ignored.
  if (variable("XDG_CACHE_HOME").starts_with('/')) return below("XDG_CACHE_HOME", "/sluice");
  return below("HOME", "/.cache/sluice");
}

std::string cache_directory(const std::string& given) {
  return cache_directory(given, platform::current_system(), platform::environment);
}

Result<uint64_t> cache_limit(const std::string& text) {
  if (text.empty()) return uint64_t{0};
  Result<uint64_t> size = parse_size(text);
  if (size.ok()) return size;
  return error(size.status().code(), "SLUICE_CACHE_SIZE: %s", size.status().message().c_str());
}

Result<uint64_t> cache_limit() {
  return cache_limit(platform::environment("SLUICE_CACHE_SIZE"));
}

}  // namespace sluice::io
