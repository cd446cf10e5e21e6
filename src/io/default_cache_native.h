// Where the model cache is. web/io/cache-directory.ts has the same rules for Node;
// tests/data/model-cache.json has environments and directories that both must agree on.
#pragma once

#include <functional>
#include <string>

#include "platform/process.h"

namespace sluice::io {

// `given` (an option), else SLUICE_CACHE, else the system's directory for caches. Empty: no cache;
// "none" asks for that. `variable` reads the environment and returns "" for what is not set.
[[nodiscard]] std::string cache_directory(
    const std::string& given, platform::System system,
    const std::function<std::string(const char*)>& variable);
// The same for this process.
[[nodiscard]] std::string cache_directory(const std::string& given);

}  // namespace sluice::io
