// Where the model cache is.
#include "io/default_cache_native.h"

#include <cmath>
#include <cstdlib>
#include <string_view>

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

uint64_t cache_limit(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  constexpr std::string_view kUnits = "kmgt";
  size_t power = 0;
  if (*end != '\0') power = kUnits.find(static_cast<char>(*end | 0x20)) + 1;
  if (power > 0) ++end;
  const std::string_view rest = end;
  const bool known = rest.empty() || rest == "B" || rest == "iB";
  const bool digit = !text.empty() && text[0] >= '0' && text[0] <= '9';
  const double bytes = std::ldexp(number, static_cast<int>(10 * power));
  return known && digit && bytes < 0x1p60 ? static_cast<uint64_t>(bytes) : 0;
}

uint64_t cache_limit() {
  return cache_limit(platform::environment("SLUICE_CACHE_SIZE"));
}

}  // namespace sluice::io
