// How much memory is left for this process and for the page cache of what it reads.
#pragma once

#include <cstdint>

namespace sluice::platform {

// Bytes that programs and the page cache can still take, at most the limit of this process's
// cgroup; 0: unknown. What the page cache holds already counts as available.
[[nodiscard]] uint64_t available_memory();

}  // namespace sluice::platform
