// Where the model cache is, and how large it may be. web/io/cache-directory.ts has the same rules
// for Node; tests/data/model-cache.json has environments and directories that both must agree on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "platform/process.h"

namespace sluice::io {

// `given` (an option), else SLUICE_CACHE, else the system's directory for caches. Empty: no cache;
// "none" asks for that. `variable` reads the environment and returns "" for what is not set.
[[nodiscard]] std::string cache_directory(const std::string& given, platform::System system,
                                          const std::function<std::string(const char*)>& variable);
// The same for this process.
[[nodiscard]] std::string cache_directory(const std::string& given);
// Most bytes of the cache, from a text such as "50G" (powers of 1024). 0, as for "": no limit.
// Errors: kInvalidArgument for what is no size.
[[nodiscard]] Result<uint64_t> cache_limit(const std::string& text);
// SLUICE_CACHE_SIZE.
[[nodiscard]] Result<uint64_t> cache_limit();

}  // namespace sluice::io
